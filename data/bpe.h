/* bpe: byte-level byte-pair encoding as GPT-2's (tokenizer.h says what it does). */
#pragma once

#include "base/files.h"
#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

typedef struct {
    int32_t left, right, product;
} Merge; // its rank is its index in the list

/* From a pair of ids to the merge's rank; open addressing, a power of two of slots, rank -1 where empty. */
typedef struct {
    int32_t left, right, rank, product;
} PairSlot;
typedef struct {
    PairSlot *slots;
    uint64_t mask;
} PairTable;

typedef struct Splitter Splitter;

typedef struct Bpe {
    Merge *merges; // (merge_count) by rank
    int64_t merge_count;
    int32_t byte_ids[256];
    PairTable pairs;
    Splitter *splitter;
    void *scratch; // for merging one long piece
    int64_t scratch_bytes;
} Bpe;

/* Makes an empty tokenizer an empty BPE. */
void bpe_start(Tokenizer *tokenizer);
/* When vocabulary and merges are there: the hash, the table of pairs, the splitter. ERROR_FORMAT on a
 * repeated pair. */
CHECKED Status bpe_finish(Tokenizer *tokenizer);
void bpe_free(Bpe *bpe); // NULL is fine

/* The end of the piece at the cursor, which moves on to it. */
CHECKED Status bpe_piece_end(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *end);
/* Appends the ids of one such piece. */
void bpe_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* ---- bpe_alphabet.c: GPT-2's printable stand-ins for the 256 bytes ---- */

/* The code point that stands for `byte`: itself where printable in Latin-1, else 256 and up in order. */
uint32_t alphabet_code_point(uint8_t byte);
/* Writes the stand-in of `byte` in UTF-8; returns its 1 or 2 bytes. */
int alphabet_write(uint8_t byte, char out[2]);
/* Reads a token's text back into bytes (at most strlen(text) of them); -1 if a letter is not of the
 * alphabet. */
int64_t alphabet_read(const char *text, uint8_t *bytes);

/* ---- bpe_split.c: GPT-2's pattern ---- */

CHECKED Status splitter_open(Splitter **splitter);
void splitter_free(Splitter *splitter); // NULL is fine
/* The end of the piece at `from`; text[0, length) is valid UTF-8 around `from`. */
CHECKED Status splitter_next(Splitter *splitter, const uint8_t *text, int64_t length, int64_t from,
                             int64_t *end);

/* ---- bpe_load.c, bpe_train.c: fill an empty tokenizer ---- */

/* From vocab.json and merges.txt; the paths serve as names in messages. */
CHECKED Status bpe_load(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path);
/* From a parsed tokenizer.json; `path` is for messages. */
CHECKED Status bpe_load_json(Tokenizer *tokenizer, const json_t *root, const char *path);
/* From texts, as tokenizer_train says. */
CHECKED Status bpe_train(Tokenizer *tokenizer, const PathList *texts, int64_t vocab);
