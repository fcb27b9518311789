/* adamw: Adam with decoupled weight decay (Loshchilov, Hutter 2019, algorithm 2) after clipping by the global
 * norm: norm = sqrt(sum g^2);   factor = clip > 0 ? min(1, clip / (norm + 1e-6)) : 1;   g = factor * g m =
 * beta1*m + (1-beta1)*g;   v = beta2*v + (1-beta2)*g^2;   t = updates + 1 w = w - lr*decay*w;   w = w - lr *
 * (m / (1-beta1^t)) / (sqrt(v / (1-beta2^t)) + eps) exactly as torch.optim.AdamW after
 * torch.nn.utils.clip_grad_norm_. Where weights are bf16, w is the fp32 master and the bf16 weight is its
 * rounding. A norm or loss that is not finite leaves every bit of m, v, w and the update count alone, and
 * sets ADAMW_SKIPPED to 1 (else 0). All parameters lie in one flat index space: parameter i is [offsets[i],
 * offsets[i] + counts[i]); gaps between them are zero in every tensor and stay zero. The first `decayed`
 * elements are those that weight decay applies to. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of the state tensor. */
enum {
    ADAMW_LEARNING_RATE, // in: set by the host before the step
    ADAMW_UPDATES,       // in and out: updates applied so far
    ADAMW_NORM,          // out: global gradient norm before clipping
    ADAMW_FACTOR,        // out: what the gradient was multiplied by
    ADAMW_SKIPPED,       // out: 1 if this update was skipped
    ADAMW_STATE_SIZE = 8
};

typedef struct {
    Tensor weight;                   // (P) flat, dtype of the computation
    Tensor master;                   // (P) fp32; empty where weight is fp32 or fp64
    Tensor gradient;                 // (P) fp32
    Tensor m, v;                     // (P) fp32
    Tensor loss;                     // (1) fp32: read for the guard
    Tensor state;                    // (ADAMW_STATE_SIZE) fp32 (fp64 where everything is), device memory
    int64_t decayed;                 // elements
    int count;                       // parameters
    const int64_t *offsets, *counts; // (count) host memory, elements
    double beta1, beta2, eps, weight_decay, clip;
} Adamw;

CHECKED Status adamw_update(Ctx *ctx, const Adamw *a);

#ifdef __cplusplus
}
#endif
#endif
