/* weights_error: how far a model with quantized weights departs from the same model without, on a text. */
#pragma once

#include "base/stats.h"
#include "run/session.h"
#include "tasks/text/windows.h"

enum { WEIGHTS_PLAIN, WEIGHTS_PACKED, WEIGHTS_KINDS }; // before and after quantization

typedef struct {
    int64_t tokens;                          // number of tokens that were compared
    double loss[WEIGHTS_KINDS];              // mean loss, by natural logarithm
    double most_difference, mean_difference; // absolute, between logits
    double divergence; // mean KL divergence of the next token's distributions from the plain ones
    size_t bytes[WEIGHTS_KINDS];
    double ms[WEIGHTS_KINDS]; // median time of a pass
    MedianInterval speed;     // per pass: plain time over packed time
} WeightsError;

/* Runs every window through both models in turns. Needs memory for both, with all logits of a batch. */
CHECKED Status weights_error_measure(const Session *session, int64_t seed, const LoaderOptions *options,
                                     const TokenSource *source, WeightsError *error);

void weights_error_print(const WeightsError *error, const Session *session, FILE *file);
