/* loss: softmax cross-entropy of the next token, from the last hidden state (the head's projection is part of
 * it). logits = hidden weight^T over the first `vocab` rows of weight (padding rows take no part); losses[n]
 * = logsumexp(logits[n]) - logits[n, targets[n]], 0 where the target is -1; loss[0] += scale * sum of losses.
 * Gradient: dlogits[n,v] = scale * (softmax(logits[n])[v] - [v = targets[n]]), 0 for ignored rows and
 * padding; dhidden = dlogits weight (written);   dweight += dlogits^T hidden. One struct serves both passes.
 * When training, a form may make the gradient already in the forward pass, while a chunk of logits is at hand
 * (the fused forms do; the time is recorded under the backward pass); after loss_backward it is there in
 * every form. */
#ifndef KERNELS_LOSS_H
#define KERNELS_LOSS_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor hidden;            // (N, C)
    Tensor weight;            // (Vp, C): the head, padded rows included
    Tensor targets;           // (N) i32, device memory, in [-1, vocab)
    int64_t vocab;            // V <= Vp
    double scale;             // 1 / (targets that count, over all micro-batches of the step)
    Tensor losses;            // (N) fp32
    Tensor loss;              // (1) fp32, +=
    Tensor dhidden;           // (N, C); empty when not training
    Tensor dweight;           // (Vp, C) fp32, +=; empty when not training
    Tensor log_probabilities; // (N, Vp) fp32: taken by loss_forward from ARENA_SAVED when naive and training
} Loss;

CHECKED Status loss_forward(Ctx *ctx, Loss *l);
CHECKED Status loss_backward(Ctx *ctx, const Loss *l);

#ifdef __cplusplus
}
#endif
#endif
