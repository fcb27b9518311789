/* tokenizer_state: the tokenizer's data. Each kind (bpe.h, wordpiece.h) fills it; tokenizer.h, on top of the
 * kinds, is the interface for everything else. */
#pragma once

#include "data/token.h"
#include "data/tokenizer_added.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TOKEN_TEXT_LIMIT = 4096, // bytes of one token in a file
    VOCAB_LIMIT = 1 << 20,
    PIECE_LIMIT = 1 << 22, // bytes; a longer piece is cut, and only there ids can differ from the original's
    KEPT_FILES = 8,
};

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

/* How tokens are decoded to text. */
typedef struct {
    bool marks;        // U+2581 is a space
    bool bytes;        // <0x0A> is a byte
    bool leading_gone; // a text's first space is removed
} Decoding;

/* A file as it was read; it is saved unchanged. */
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
    TokenList before, after;        // tokens around a text when special tokens are requested
    uint64_t hash;
    uint8_t *pool;               // all tokens' bytes, concatenated
    int64_t *starts;             // (vocab + 1) offset of each token in the pool
    bool *spelled;               // (vocab) spelled literally in files, not in the byte alphabet
    Decoding decoding;           // decoding beyond the pool's bytes
    AddedTokens added[2];        // searched in the text; searched in the normalized text
    const AddedToken *passed;    // the first special token that a plain text has spelled
    bool by_stretches;           // a text must be normalized before it is split
    struct Bpe *bpe;             // of a BPE
    struct WordPiece *wordpiece; // of a WordPiece
    struct CachedPiece *cache;   // (cache_slots) pieces and their ids; NULL until the first
    int64_t cache_slots, cached; // cached: slots in use
    KeptFile kept[KEPT_FILES];
    int kept_count;
    char *chat_template;  // or NULL
    bool chose_template;  // the template is not from the files that were read
    struct json_t *names; // tokenizer_names
} Tokenizer;

/* A tokenizer without tokens. */
Tokenizer *tokenizer_new(void);
/* Reserves memory for `vocab` tokens of `bytes` bytes in all. */
void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes);
/* Shortens the piece at `from` if it is over PIECE_LIMIT bytes long, at a character boundary. */
void piece_cut(const uint8_t *text, int64_t from, int64_t *end);
/* Records a token as a special one if it has such a name. */
void special_take(Tokenizer *tokenizer, const char *name, int32_t id);
