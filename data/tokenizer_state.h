/* tokenizer_state: what a tokenizer consists of. A kind's own unit (bpe.h, wordpiece.h) fills it;
 * tokenizer.h, on top of the kinds, shows it to everybody else. */
#pragma once

#include "data/token.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TOKENIZER_FILE_LIMIT = 64 << 20, // bytes
    TOKEN_TEXT_LIMIT = 4096,         // bytes of one token in a file
    VOCAB_LIMIT = 1 << 20,
    PIECE_LIMIT = 1 << 22, // bytes; a longer piece is cut, and there alone ids can differ from the original's
};

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

typedef struct Tokenizer {
    TokenizerKind kind;
    int32_t vocab;
    int32_t end_of_text;            // or -1
    int32_t special[SPECIAL_COUNT]; // or -1
    uint64_t hash;
    uint8_t *pool;               // all tokens' bytes, one after the other
    int64_t *starts;             // (vocab + 1) where each begins in the pool
    bool *spelled;               // (vocab) written in files as itself, not in the byte alphabet
    struct Bpe *bpe;             // of a BPE
    struct WordPiece *wordpiece; // of a WordPiece
    struct CachedPiece *cache;   // pieces met before and their ids; NULL until the first
} Tokenizer;

/* A tokenizer without tokens. */
Tokenizer *tokenizer_new(void);
/* Makes room for `vocab` tokens of `bytes` bytes in all. */
void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes);
/* Ends the piece at `from` earlier where it is over PIECE_LIMIT bytes long, not inside a character. */
void piece_cut(const uint8_t *text, int64_t from, int64_t *end);
/* Takes a token as one of the special ones, if its name is one of theirs. */
void special_take(Tokenizer *tokenizer, const char *name, int32_t id);
