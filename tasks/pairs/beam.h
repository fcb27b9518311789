/* beam: beam search: selects the next tokens of several sentences at once, each with `width` hypotheses
 * (width 1 is greedy). It knows logits and tokens, but no model.
 *
 * A finished hypothesis Y of log-probability s scores
 *     s / lp(Y),   lp(Y) = ((5 + |Y|) / 6)^penalty
 * where |Y| includes the end token (Wu et al. 2016, eq. 14, without coverage). In each step the likeliest
 * 2 * width continuations of a sentence are considered in order: one that ends is finished if it is among
 * the first `width`; the first `width` that do not end continue. A sentence is done when `width`
 * hypotheses have finished, or at `most` tokens, where open ones finish as they are. Among hypotheses of
 * equal score the earlier one is the best. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t sentences, width;
    double penalty;
    int32_t begin, end;  // the first token of every hypothesis, and the one that ends it
    int64_t least, most; // tokens of a translation, including the end token
    int64_t vocab;       // number of logits that are tokens
} BeamOptions;

typedef struct Beams Beams;

/* ERROR_USAGE for a width, penalty or size out of range. */
CHECKED Status beams_open(const BeamOptions *options, Beams **beams);
void beams_close(Beams *beams); // accepts NULL

/* Starts again: every row (there are sentences * width, grouped by sentence) contains the begin token. */
void beams_start(Beams *beams);

/* Takes the logits of each row's next token, `stride` floats apart. tokens[row] is set to the row's new last
 * token, parents[row] to the previous row that it continues (of the same sentence). Rows of finished
 * sentences repeat the end token. Among equal candidates the lower row, then the lower token, comes first.
 * ERROR_NONFINITE if a row's logits are not finite. */
CHECKED Status beams_advance(Beams *beams, const float *logits, int64_t stride, int32_t *tokens,
                             int32_t *parents);

bool beams_done(const Beams *beams);
int64_t beams_length(const Beams *beams); // tokens of every open hypothesis so far, including the begin token

/* All rows' tokens so far: (rows, beams_length), with the begin token; rows are `stride` tokens apart. */
const int32_t *beams_rows(const Beams *beams, int64_t *stride);

/* The best translation of a sentence, without begin and end, when done; and its score. */
const int32_t *beams_best(const Beams *beams, int64_t sentence, int64_t *length, double *score);
