/* loss: softmax cross-entropy of each row's target, from the last hidden state (the head's projection is part
 * of it). logits = hidden weight^T + bias over the first `vocab` rows of weight (padding rows take no part);
 * losses[n] = logsumexp(logits[n]) - sum over v of q[n,v] logits[n,v], 0 where the target is -1, with q = 1 -
 * smoothing at the target and smoothing / vocab more everywhere (Szegedy et al. 2016, section 7; without
 * smoothing this is logsumexp - logit of the target);   loss[0] += s * sum of losses, where s is `scale`
 * or, with a count, scale / count[0] (0 where that is 0: a batch that is all padding).
 * Gradient: dlogits[n,v] = s * (softmax(logits[n])[v] - q[n,v]), 0 for ignored rows and padding; dhidden =
 * dlogits weight (written);   dweight += dlogits^T hidden;   dbias += sum over rows of dlogits. One struct
 * serves both passes. When training, a form may make the gradient already in the forward pass, while a chunk
 * of logits is at hand (the fused forms do; the time is recorded under the backward pass); after
 * loss_backward it is there in every form. */
#ifndef KERNELS_LOSS_H
#define KERNELS_LOSS_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor hidden;            // (N, C)
    Tensor weight;            // (Vp, C): the head, padded rows included
    Tensor bias;              // (Vp); may be empty
    Tensor targets;           // (N) i32, device memory, in [-1, vocab)
    int64_t vocab;            // V <= Vp
    double scale;             // 1 / (targets that count, over all micro-batches of the step)
    Tensor count;             // (1) fp32, device memory: what scale is divided by; may be empty
    double smoothing;         // in [0, 1): of the labels
    Tensor losses;            // (N) fp32
    Tensor loss;              // (1) fp32, +=
    Tensor dhidden;           // (N, C); empty when not training
    Tensor dweight;           // (Vp, C) fp32, +=; empty when not training
    Tensor dbias;             // (Vp) fp32, +=; empty where bias is, or when not training
    Tensor log_probabilities; // (N, Vp) fp32: taken by loss_forward from ARENA_SAVED when naive and training
} Loss;

CHECKED Status loss_forward(Ctx *ctx, Loss *l);
CHECKED Status loss_backward(Ctx *ctx, const Loss *l);

#ifdef __cplusplus
}
#endif
#endif
