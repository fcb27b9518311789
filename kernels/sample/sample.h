/* sample: draws a token from a row of logits. No part of the model, so it has no slot at the door; the room's
 * functions are called as gemm's are. Every logit gets an integer weight
 *
 *     w = round(2^30 * exp((logit - largest) / temperature))
 *
 * so that no sum depends on its order and every device draws the same token; a weight below min_p * 2^30 counts
 * as 0. Kept are the top_k heaviest (the lower id first among equals), and of these the fewest, heaviest first, that weigh at least top_p of all
 * that top_k kept (the nucleus: Holtzman, Buys, Du, Forbes and Choi 2020, section 3.1). Drawn is the first
 * kept id, in the order of ids, at which the running sum of the kept weights exceeds uniform * their sum.
 * Greedy takes the largest logit, the lowest id among equals. */
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

/* On the host: logits (vocab), none of them NaN or +inf, the largest finite and named by `best`;
 * `weights`, (vocab), is scratch. */
int32_t sample_host(const SampleRule *rule, const float *logits, int64_t vocab, int32_t best, double uniform,
                    int32_t *weights);

/* On the device, as a part of work that repeats without the host: the token goes where the next step reads
 * it. */
typedef struct {
    SampleRule rule;
    Tensor logits;   // (1, padded vocab) fp32, at a 16-byte address
    int64_t vocab;   // columns that count
    Tensor uniforms; // (n) fp64, each in [0, 1)
    Tensor position; // (1) i32: which of them is used; counted up by 1
    Tensor token;    // (1) i32, written: 0 where nothing could be drawn
    int32_t *told; // (n) pinned host memory: told[position] is the token, or -1 where a logit is NaN or +inf,
                   // or where all are -inf
} Sample;

/* NULL in a build without CUDA. Takes scratch; only that while measuring. */
__attribute__((weak)) CHECKED Status sample_cuda(Ctx *ctx, const Sample *sample);

__END_DECLS
