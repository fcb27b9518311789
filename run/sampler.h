/* sampler: selects the next token from a row of logits. */
#pragma once

#include "kernels/sample/sample.h"

typedef struct {
    double temperature; // divides the logits; 0: greedy
    int64_t top_k;      // only the k largest logits (lower id first among equals); 0: all
    double top_p;       // then only the fewest likeliest tokens whose probabilities add up to p; 1: all
    double min_p;       // before both, only tokens at least this fraction as likely as the likeliest; 0: all
    /* Divides the logit of a token that already occurs in the text, or multiplies it if negative (Keskar et
     * al. 2019, section 4.1); 1, or 0: unchanged. */
    double repeat_penalty;
    uint64_t seed;
    uint64_t sequence; // sequences of one seed with different numbers are independent
} SamplerOptions;

typedef struct Sampler Sampler;

/* For rows of `vocab` logits. ERROR_USAGE for a temperature that is negative or not finite, a negative top_k,
 * a top_p outside (0, 1], a min_p outside [0, 1], or a repeat_penalty that is negative or not finite. */
CHECKED Status sampler_open(int64_t vocab, const SamplerOptions *options, Sampler **sampler);
void sampler_close(Sampler *sampler);

/* Samples a token from the softmax of logits / temperature, restricted to the k largest and then to the
 * nucleus, as in kernels/sample/sample.h. `logits` are (vocab) in host memory, without the vocabulary's
 * padding. The result is a pure function of the logits, the options and `index`, the token's position in the
 * sequence. Greedy selects the first of equal maxima. A logit of -inf is never selected; NaN, +inf, or no
 * logit above -inf is ERROR_NONFINITE. */
CHECKED Status sampler_next(Sampler *sampler, const float *logits, int64_t index, int32_t *token);

/* Applies the repeat_penalty to logits (vocab), once for each distinct token of `tokens`. */
void sampler_penalize(Sampler *sampler, const int32_t *tokens, int64_t count, float *logits);
bool sampler_penalizes(const Sampler *sampler); // whether the options penalize repetition

/* The parameters for sampling the same tokens on a device: the rule, and the uniform number of each
 * `index`. */
SampleRule sampler_rule(const Sampler *sampler);
double sampler_uniform(const Sampler *sampler, int64_t index);
