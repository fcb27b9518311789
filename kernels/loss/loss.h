/* loss: the head's projection and softmax cross-entropy, from the last hidden state.
 *
 *     logits    = hidden weight^T + bias      over the first `vocab` rows of weight: padding takes no part
 *     losses[n] = logsumexp(logits[n]) - sum over v of q[n,v] * logits[n,v],    or 0 where targets[n] is -1
 *     loss     += s * sum over n of losses[n]
 *
 * s is `scale` or, with a count, scale / count[0]: 0 where that is 0, a batch that is all padding. q[n] is
 * the target's distribution, with `smoothing` e
 *
 *     q[n,v] = e / vocab,   and 1 - e more at the target      Szegedy et al. 2016, section 7
 *
 * Backward:
 *
 *     dlogits[n,v] = s * (softmax(logits[n])[v] - q[n,v])     0 for rows without a target, and for padding
 *     dhidden      = dlogits weight                           written
 *     dweight     += dlogits^T hidden
 *     dbias       += sum over rows of dlogits
 *
 * One struct serves both passes. When training, a form may make the gradient in the forward pass already,
 * while a chunk of logits is at hand (the fused forms do; the time is recorded under the backward pass).
 * After loss_backward it is there in every form. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

/* hidden, weight, bias and dhidden have one dtype. */
typedef struct {
    Tensor hidden;    // (N, C)
    Tensor weight;    // (Vp, C): the head, padding rows included
    Tensor bias;      // (Vp); may be empty
    Tensor targets;   // (N) i32, device memory, each in [-1, vocab)
    int64_t vocab;    // V <= Vp
    double scale;     // 1 / (targets that count, over all micro-batches of the step)
    Tensor count;     // (1) fp32, device memory: what scale is divided by; may be empty
    double smoothing; // in [0, 1)
    Tensor losses;    // (N) fp32
    Tensor loss;      // (1) fp32, +=

    /* When training; else empty. */
    Tensor dhidden;           // (N, C)
    Tensor dweight;           // (Vp, C) fp32, +=
    Tensor dbias;             // (Vp) fp32, +=; empty where bias is
    Tensor log_probabilities; // (N, Vp) fp32, of the naive form
} Loss;

/* losses, and when training dhidden and log_probabilities, are taken from `saved` where they are empty. */
CHECKED Status loss_forward(Ctx *ctx, Loss *l, ArenaKind saved);
CHECKED Status loss_backward(Ctx *ctx, const Loss *l);

__END_DECLS
