/* loss: the head's projection and softmax cross-entropy, from the last hidden state.
 *
 *     logits    = hidden weight^T + bias      over the first `vocab` rows of weight; the rest is padding
 *     losses[n] = logsumexp(logits[n]) - sum over v of q[n,v] * logits[n,v],    or 0 if targets[n] is -1
 *     loss     += s * sum over n of losses[n]
 *
 * s is `scale` or, with a count, scale / count[0] (0 for a count of 0: a batch of padding only). q[n] is
 * the target distribution with `smoothing` e
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
 * One struct serves both passes. In training, a form may compute the gradient in the forward pass, while a
 * chunk of logits exists. The fused forms do, and record the time under the backward pass. After
 * loss_backward the gradient is complete in every form. */
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
    double scale;     // 1 / (number of targets in all micro-batches of the step)
    Tensor count;     // (1) fp32, device memory: divisor of scale; may be empty
    double smoothing; // in [0, 1)
    Tensor losses;    // (N) fp32
    Tensor loss;      // (1) fp32, +=

    /* In training; else empty. */
    Tensor dhidden;           // (N, C)
    Tensor dweight;           // (Vp, C) fp32, +=
    Tensor dbias;             // (Vp) fp32, +=; empty if bias is
    Tensor log_probabilities; // (N, Vp) fp32, naive form only
} Loss;

/* Takes empty losses, and in training empty dhidden and log_probabilities, from `saved`. */
CHECKED Status loss_forward(Ctx *ctx, Loss *l, ArenaKind saved);
CHECKED Status loss_backward(Ctx *ctx, const Loss *l);

__END_DECLS
