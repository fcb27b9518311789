/* head: from hidden states to loss and logits. BERT's head computes only rows that have a target, and has
 * a linear layer, an activation and a norm before the vocabulary (Devlin et al. 2019, section 3.1). A
 * class head reads one row per sequence, the class token's or the mean of all (Dosovitskiy et al. 2021,
 * section 3.1, appendix D.3). */
#pragma once

#include "kernels/gather/gather.h"
#include "kernels/linear/linear.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "model/parameters.h"

/* Targets of the loss. */
typedef struct {
    Tensor targets;   // (B, T) i32, or (M) with rows, or (B) classes; -1: ignored
    Tensor rows;      // (M) i32: rows of hidden with a target, -1: none; empty: all rows
    Tensor count;     // (1) fp32, device memory: divisor of scale; may be empty
    double scale;     // loss_sum += scale * sum of losses
    double smoothing; // label smoothing
} Targets;

// saved by the last forward pass
typedef struct {
    GatherForward gather;
    PoolForward pool;
    LinearForward transform;
    NormForward norm;
    Loss loss;
    Shape hidden; // (B, T, C)
} Head;

/* Adds to loss_sum (1). In training, head_backward may follow. */
CHECKED Status head_forward(Ctx *ctx, const Parameters *parameters, Tensor hidden, const Targets *targets,
                            Tensor loss_sum, Head *head);
/* dhidden (B, T, C) is taken from ARENA_SAVED or was taken by head_forward. */
CHECKED Status head_backward(Ctx *ctx, const Parameters *parameters, const Head *head, Tensor *dhidden);

/* Computes logits (..., padded vocab) of `hidden` (..., C), in the dtype of the computation, or in fp32 if
 * the head has no bias. */
CHECKED Status head_logits(Ctx *ctx, const Parameters *parameters, Tensor hidden, Tensor logits);
