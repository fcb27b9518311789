/* sampler: the next token from a row of logits. */
#pragma once

#include "kernels/sample/sample.h"

typedef struct {
    double temperature; // logits are divided by it; 0: greedy
    int64_t top_k;      // only the k largest logits (the lower id first among equals); 0: all
    double top_p;       // then only the fewest, the likeliest first, whose probability adds up to p; 1: all
    uint64_t seed;
    uint64_t sequence; // sequences of one seed with different numbers are independent
} SamplerOptions;

typedef struct Sampler Sampler;

/* For rows of `vocab` logits. ERROR_USAGE for a temperature that is negative or not finite, a negative top_k,
 * or a top_p outside (0, 1]. */
CHECKED Status sampler_open(int64_t vocab, const SamplerOptions *options, Sampler **sampler);
void sampler_close(Sampler *sampler);

/* Draws a token from the softmax of logits / temperature, restricted to the k largest and then to the
 * nucleus, as kernels/sample/sample.h says. `logits` are (vocab) in host memory, without the
 * vocabulary's padding. The draw is a pure function of the logits, the options and `index`, the token's
 * position in the sequence. Greedy takes the first of equal maxima. A logit of -inf is never drawn; NaN, +inf, or no
 * logit above -inf is ERROR_NONFINITE. */
CHECKED Status sampler_next(Sampler *sampler, const float *logits, int64_t index, int32_t *token);

/* What a device needs to draw the same tokens: the rule, and the uniform number of each `index`. */
SampleRule sampler_rule(const Sampler *sampler);
double sampler_uniform(const Sampler *sampler, int64_t index);
