/* pairs: sentences with their translations, from two texts with corresponding lines, tokenized with one
 * tokenizer. A source row is the sentence and the end token; a target row's inputs are the begin token and
 * the sentence, its targets the sentence and the end token. */
#pragma once

#include "data/loader.h"
#include "data/tokenizer.h"

#include <stdint.h>

typedef struct PairSource PairSource;

typedef struct {
    const char *source, *target; // texts
    Tokenizer *tokenizer;        // with pad, begin and end tokens; used only while opening
    int64_t seq;                 // most tokens per row; longer pairs are skipped
} PairOptions;

/* ERROR_FORMAT if the texts' numbers of lines differ or nothing is left; ERROR_USAGE for a tokenizer without
 * the special tokens. Pairs with an empty line are skipped, too. */
CHECKED Status pairs_open(const PairOptions *options, PairSource **pairs);
void pairs_close(PairSource *pairs); // accepts NULL

int64_t pairs_count(const PairSource *pairs);
int64_t pairs_left_out(const PairSource *pairs);

/* A sentence's ids, without begin and end; side 0: source, 1: target. They live as long as the pairs. */
const int32_t *pairs_sentence(const PairSource *pairs, int side, int64_t pair, int64_t *length);

/* Tokens of one epoch of batches, of both sides: without padding, and with it. */
typedef struct {
    int64_t tokens, padded;
} PairPadding;
CHECKED Status pairs_padding(const PairSource *pairs, int64_t batch, uint64_t seed, PairPadding *padding);

/* Splits "SRC,TGT" at its comma. ERROR_USAGE unless there is exactly one, and neither side is empty. The
 * caller frees both with memory_free. */
CHECKED Status pairs_split_names(const char *names, char **source, char **target);

/* Batches of pairs of similar length: with `shuffle`, each epoch's shuffled pairs are sorted by length in
 * steps of BUCKET_STEP, cut into batches, and the batches shuffled. A row is padded to the longest of its
 * batch; the last batch of an epoch may contain rows of padding, whose length is 0. The pairs must outlive
 * the loader. ERROR_FORMAT if no pair fits. */
CHECKED Status loader_open_pairs(const LoaderOptions *options, const PairSource *pairs, Loader **loader);

/* ---- for the maker of batches ---- */

typedef struct {
    int32_t pad, begin, end;
} PairTokens;

PairTokens pairs_special(const PairSource *pairs);
int64_t pairs_seq(const PairSource *pairs); // most tokens per row
