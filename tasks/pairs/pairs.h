/* pairs: sentences with their translations, from two texts in which line i of one belongs to line i of the
 * other, tokenized with one tokenizer. A source row is the sentence and the end token; a target row's inputs
 * are the begin token and the sentence, its targets the sentence and the end token. */
#pragma once

#include "data/loader.h"
#include "data/tokenizer.h"

#include <stdint.h>

typedef struct PairSource PairSource;

typedef struct {
    const char *source, *target; // texts
    Tokenizer *tokenizer;        // with pad, begin and end tokens; used while opening, never kept
    int64_t seq;                 // the most tokens of a row; longer pairs are left out
} PairOptions;

/* ERROR_FORMAT where the texts' numbers of lines differ or nothing is left; ERROR_USAGE for a tokenizer
 * without the special tokens. An empty line, too, leaves its pair out. */
CHECKED Status pairs_open(const PairOptions *options, PairSource **pairs);
void pairs_close(PairSource *pairs); // NULL is fine

int64_t pairs_count(const PairSource *pairs);
int64_t pairs_left_out(const PairSource *pairs);

/* A sentence's ids, without begin and end; side 0: source, 1: target. They live as long as the pairs. */
const int32_t *pairs_sentence(const PairSource *pairs, int side, int64_t pair, int64_t *length);

/* Tokens of one epoch of batches, of both sides: that count, and with the padding. */
typedef struct {
    int64_t tokens, padded;
} PairPadding;
CHECKED Status pairs_padding(const PairSource *pairs, int64_t batch, uint64_t seed, PairPadding *padding);

/* Splits "SRC,TGT" at its one comma. ERROR_USAGE if it has not exactly one, or a side is empty. The caller
 * frees both with memory_free. */
CHECKED Status pairs_split_names(const char *names, char **source, char **target);

/* Batches of pairs of similar length: with `shuffle`, each epoch's shuffled pairs are sorted by their lengths
 * in steps of BUCKET_STEP, cut into batches, and the batches shuffled. A row is padded to the longest of its
 * batch; the last batch of an epoch may have rows that are all padding: their lengths are 0. The pairs outlive
 * the loader. ERROR_FORMAT where no pair fits. */
CHECKED Status loader_open_pairs(const LoaderOptions *options, const PairSource *pairs, Loader **loader);

/* ---- for the maker of batches ---- */

typedef struct {
    int32_t pad, begin, end;
} PairTokens;

PairTokens pairs_special(const PairSource *pairs);
int64_t pairs_seq(const PairSource *pairs); // the most tokens of a row
