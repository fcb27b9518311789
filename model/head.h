/* head: from hidden states to the loss, and to logits. BERT's looks only at the rows that have a target, and
 * has a linear layer, an activation and a norm before the vocabulary (Devlin et al. 2019, section 3.1). That
 * of a class task looks at one row of each sequence: the class token's, or the mean of all (Dosovitskiy et
 * al. 2021, section 3.1, appendix D.3). */
#pragma once

#include "kernels/gather/gather.h"
#include "kernels/linear/linear.h"
#include "kernels/loss/loss.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "model/parameters.h"

/* What the loss is taken against. */
typedef struct {
    Tensor targets;   // (B, T) i32, or (M) with rows, or (B) classes; -1: ignored
    Tensor rows;      // (M) i32: the rows of hidden that the targets belong to, -1: none; empty: all rows
    Tensor count;     // (1) fp32, device memory: what scale is divided by; may be empty
    double scale;     // loss_sum += scale * sum of losses
    double smoothing; // of the labels
} Targets;

/* Of the last forward pass. */
typedef struct {
    GatherForward gather;
    PoolForward pool;
    LinearForward transform;
    NormForward norm;
    Loss loss;
    Shape hidden; // (B, T, C)
} Head;

/* Adds to loss_sum (1). When training, backward may follow. */
CHECKED Status head_forward(Ctx *ctx, const Parameters *parameters, Tensor hidden, const Targets *targets,
                            Tensor loss_sum, Head *head);
/* dhidden (B, T, C) is taken from ARENA_SAVED or is one that head_forward took. */
CHECKED Status head_backward(Ctx *ctx, const Parameters *parameters, const Head *head, Tensor *dhidden);

/* logits (..., padded vocab) of `hidden` rows (..., C). Their dtype is that of the computation, or fp32 where
 * the head has no bias. */
CHECKED Status head_logits(Ctx *ctx, const Parameters *parameters, Tensor hidden, Tensor logits);
