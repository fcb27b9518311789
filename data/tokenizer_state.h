/* tokenizer_state: what a tokenizer consists of. A kind's own unit (bpe.h, wordpiece.h) fills it;
 * tokenizer.h, on top of the kinds, shows it to everybody else. */
#pragma once

#include "data/token.h"
#include "data/tokenizer_added.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TOKEN_TEXT_LIMIT = 4096, // bytes of one token in a file
    VOCAB_LIMIT = 1 << 20,
    PIECE_LIMIT = 1 << 22, // bytes; a longer piece is cut, and there alone ids can differ from the original's
    KEPT_FILES = 8,
};

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

/* How the vocabulary's spelling becomes text again. */
typedef struct {
    bool marks;        // U+2581 is a space
    bool bytes;        // <0x0A> is a byte
    bool leading_gone; // a text's first space is none of it
} Decoding;

/* A file as it was read: it is saved as such. */
typedef struct {
    const char *name;
    char *contents;
    int64_t length;
} KeptFile;

typedef struct Tokenizer {
    TokenizerKind kind;
    int32_t vocab;
    int32_t end_of_text;            // or -1
    int32_t special[SPECIAL_COUNT]; // or -1
    TokenList before, after;        // what a text stands between where special tokens are asked for
    uint64_t hash;
    uint8_t *pool;               // all tokens' bytes, one after the other
    int64_t *starts;             // (vocab + 1) where each begins in the pool
    bool *spelled;               // (vocab) written in files as itself, not in the byte alphabet
    Decoding decoding;           // of what the pool does not show
    AddedTokens added[2];        // looked for in the text; in the normalized text
    const AddedToken *passed;    // the first special one that a text spelled where none was asked for
    bool by_stretches;           // a text must be normalized before it is cut
    struct Bpe *bpe;             // of a BPE
    struct WordPiece *wordpiece; // of a WordPiece
    struct CachedPiece *cache;   // (cache_slots) pieces met before and their ids; NULL until the first
    int64_t cache_slots, cached; // cached: slots in use
    KeptFile kept[KEPT_FILES];
    int kept_count;
    char *chat_template;  // or NULL
    bool chose_template;  // it is none of the files that were read
    struct json_t *names; // tokenizer_names
} Tokenizer;

/* A tokenizer without tokens. */
Tokenizer *tokenizer_new(void);
/* Makes room for `vocab` tokens of `bytes` bytes in all. */
void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes);
/* Ends the piece at `from` earlier where it is over PIECE_LIMIT bytes long, not inside a character. */
void piece_cut(const uint8_t *text, int64_t from, int64_t *end);
/* Takes a token as one of the special ones, if its name is one of theirs. */
void special_take(Tokenizer *tokenizer, const char *name, int32_t id);
