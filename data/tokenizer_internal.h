/* What the tokenizer's files share with each other and with nobody else. */
#ifndef DATA_TOKENIZER_INTERNAL_H
#define DATA_TOKENIZER_INTERNAL_H

#include "base/status.h"
#include "data/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOKEN_TEXT_LIMIT = 4096, // bytes of one token in a file
    VOCAB_LIMIT = 1 << 20,
    PIECE_LIMIT = 1 << 22, // bytes; a longer piece is cut, and there alone ids can differ from the original's
    CACHED_BYTES = 31,     // the longest piece that is remembered
    CACHED_IDS = 7,
    CACHE_SLOTS = 1 << 14,
};

typedef struct {
    int32_t left, right, product;
} Merge; // its rank is its place in the list

/* From a pair of ids to the merge's rank; open addressing, a power of two of slots, rank -1 where empty. */
typedef struct {
    int32_t left, right, rank, product;
} PairSlot;
typedef struct {
    PairSlot *slots;
    uint64_t mask;
} PairTable;

/* A piece met before and its ids: one cache line. `length` is 0 in an unused slot. */
typedef struct {
    uint8_t bytes[CACHED_BYTES], length;
    int32_t count, ids[CACHED_IDS];
} CachedPiece;

typedef struct Splitter Splitter;
typedef struct WordPiece WordPiece;

typedef enum { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_WORDPIECE } TokenizerKind;

struct Tokenizer {
    TokenizerKind kind;
    int32_t vocab;
    int32_t end_of_text;            // or -1
    int32_t special[SPECIAL_COUNT]; // or -1
    uint64_t hash;
    uint8_t *pool;   // all tokens' bytes, one after the other
    int64_t *starts; // (vocab + 1) where each begins in the pool
    bool *spelled;   // (vocab) written in files as itself, not in the byte alphabet
    Merge *merges;   // (merge_count) by rank
    int64_t merge_count;
    int32_t byte_ids[256];
    PairTable pairs;
    Splitter *splitter;   // of BPE
    WordPiece *wordpiece; // of WordPiece
    CachedPiece *cache;   // (CACHE_SLOTS) direct-mapped
    void *scratch;        // for merging one piece
    int64_t scratch_bytes;
};

/* ---- tokenizer.c ---- */

/* Makes `special` all -1. */
void special_clear(Tokenizer *tokenizer);
/* Takes a token as one of the special ones, if its name is one of theirs. */
void special_take(Tokenizer *tokenizer, const char *name, int32_t id);
/* The end of the piece at the cursor, at most PIECE_LIMIT bytes on. */
CHECKED Status piece_end(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *end);

/* ---- tokenizer_alphabet.c: GPT-2's printable stand-ins for the 256 bytes ---- */

/* The code point that stands for `byte`: itself where printable in Latin-1, else 256 and up in order. */
uint32_t alphabet_code_point(uint8_t byte);
/* Writes the stand-in of `byte` in UTF-8; returns its 1 or 2 bytes. */
int alphabet_write(uint8_t byte, char out[2]);
/* Reads a token's text back into bytes (at most strlen(text) of them); -1 if a letter is not of the
 * alphabet. */
int64_t alphabet_read(const char *text, uint8_t *bytes);

/* ---- tokenizer_split.c ---- */

CHECKED Status splitter_open(Splitter **splitter);
void splitter_free(Splitter *splitter);
/* The bytes of the UTF-8 character at `at`, of which `left` bytes are there; 0 if it is none. */
int utf8_character(const uint8_t *at, int64_t left);
/* The end of the stretch of valid UTF-8 that begins at `from` (`from` itself if none does). */
int64_t utf8_valid_end(const uint8_t *text, int64_t from, int64_t length);
/* The end of the piece at `from` by GPT-2's pattern; text[0, length) is valid UTF-8 around `from`. */
CHECKED Status splitter_next(Splitter *splitter, const uint8_t *text, int64_t length, int64_t from,
                             int64_t *end);

/* ---- tokenizer_merge.c ---- */

CHECKED Status pair_table_build(Tokenizer *tokenizer); // from its merges; ERROR_FORMAT on a repeated pair
/* Appends the ids of one piece of at most PIECE_LIMIT bytes. */
CHECKED Status merge_piece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);
CHECKED Status token_list_reserve(TokenList *list, int64_t more);

/* ---- tokenizer_load.c ---- */

/* When vocabulary and merges are there: the hash, and the pair table. `name` is for messages. */
CHECKED Status finish_bpe(Tokenizer *tokenizer, const char *name);

/* Fills vocabulary and merges from files; the paths serve as names in messages. */
CHECKED Status load_vocab_and_merges(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path);
CHECKED Status load_tokenizer_json(Tokenizer *tokenizer, const char *path);
/* Does this tokenizer_config.json say that the tokenizer is the bytes? */
CHECKED Status load_is_bytes(const char *path, bool *bytes);

#endif
