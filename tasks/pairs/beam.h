/* beam: which tokens come next, for several sentences at once, each with `width` hypotheses (beam search;
 * width 1 is greedy). Knows logits and tokens, no model.
 *
 * A finished hypothesis Y of log-probability s scores
 *     s / lp(Y),   lp(Y) = ((5 + |Y|) / 6)^penalty
 * where |Y| counts the end token (Wu et al. 2016, eq. 14, without coverage). In each step the likeliest
 * 2 * width continuations of a sentence are looked at in order: one that ends is finished if it is among the
 * first `width`; the first `width` that do not end go on. A sentence is done when `width` hypotheses have
 * finished, or at `most` tokens, where open ones finish as they are. Of equals the earlier one is the
 * best. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t sentences, width;
    double penalty;
    int32_t begin, end;  // the first token of every hypothesis, and the one that finishes it
    int64_t least, most; // tokens of a translation, with the end token
    int64_t vocab;       // logits that are tokens
} BeamOptions;

typedef struct Beams Beams;

/* ERROR_USAGE for a width, penalty or size out of range. */
CHECKED Status beams_open(const BeamOptions *options, Beams **beams);
void beams_close(Beams *beams); // NULL is fine

/* Begins anew: every row (there are sentences * width, those of one sentence together) holds the begin
 * token. */
void beams_start(Beams *beams);

/* Takes the logits of the next token of each row, `stride` floats from one row to the next; tokens[row]
 * becomes the token that the row ends with now, parents[row] the row of before that it goes on from (of the
 * same sentence). Rows of finished sentences repeat the end token. Equal candidates: the lower row, then the
 * lower token, first. ERROR_NONFINITE where a row's logits are not finite. */
CHECKED Status beams_advance(Beams *beams, const float *logits, int64_t stride, int32_t *tokens,
                             int32_t *parents);

bool beams_done(const Beams *beams);
int64_t beams_length(const Beams *beams); // tokens of every open hypothesis so far, the begin token counted

/* All rows' tokens so far: (rows, beams_length), the begin token first; `stride` tokens from row to row. */
const int32_t *beams_rows(const Beams *beams, int64_t *stride);

/* The best translation of a sentence, without begin and end, when done; and its score. */
const int32_t *beams_best(const Beams *beams, int64_t sentence, int64_t *length, double *score);
