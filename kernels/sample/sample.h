/* sample: draws a token from a row of logits. It is not part of the model, so it has no slot. Every logit
 * gets an integer weight
 *
 *     w = round(2^30 * exp((logit - largest) / temperature))
 *
 * so that sums do not depend on their order, and every device draws the same token. Weights below min_p *
 * 2^30 count as 0. The top_k heaviest weights are kept (among equals the lower id), and of these the
 * smallest set of heaviest weights whose sum is at least top_p of the top_k's sum (nucleus sampling:
 * Holtzman, Buys, Du, Forbes and Choi 2020, section 3.1). The result is the first kept id, in order of
 * ids, at which the running sum of kept weights exceeds uniform * their total. Greedy takes the largest
 * logit, and the lowest id among equals. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

enum { SAMPLE_ONE = 1 << 30 }; // the weight of the largest logit

typedef struct {
    bool greedy;
    float sharpness; // log2(e) / temperature, finite
    int64_t top_k;   // 0: all
    double top_p;    // 1: all
    int32_t least;   // min_p * 2^30, rounded up; 0: all
} SampleRule;

/* `temperature` 0 is greedy, and so is top_k = 1. */
SampleRule sample_rule(double temperature, int64_t top_k, double top_p, double min_p);

/* A rule as numbers, which are equal if the rules are. */
enum { SAMPLE_TERMS = 5 };
void sample_rule_terms(const SampleRule *rule, double terms[SAMPLE_TERMS]);
bool sample_rules_equal(const SampleRule *a, const SampleRule *b);

/* On the host. logits (vocab) has no NaN or +inf; the largest is finite and at `best`; `weights` (vocab)
 * is scratch. */
int32_t sample_host(const SampleRule *rule, const float *logits, int64_t vocab, int32_t best, double uniform,
                    int32_t *weights);

/* On the device, within a repeated graph, a token for each row: they are written where the next step reads
 * them. */
typedef struct {
    SampleRule rule;
    Tensor logits;   // (rows, padded vocab) fp32, at a 16-byte address
    int64_t vocab;   // columns without padding
    Tensor uniforms; // (n) fp64, each in [0, 1)
    Tensor position; // (rows) i32: index of the uniform to use; incremented by 1
    Tensor token;    // (rows) i32, written; 0 if nothing could be drawn
    int32_t
        *sampled; // (n) pinned host memory: sampled[position] = the token, or -1 if a logit is NaN or +inf,
                  // or all are -inf
} Sample;

/* NULL in a build without CUDA. Takes scratch; while measuring it does nothing else. */
__attribute__((weak)) CHECKED Status sample_cuda(Ctx *ctx, const Sample *sample);

__END_DECLS
