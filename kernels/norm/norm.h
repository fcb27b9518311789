/* norm: the residual add and normalization over the last axis, of one of two kinds:
 *
 *     r = x + depth(dropout(skip))
 *     y = (r - mean) * rstd * weight + bias                  LAYER: Ba, Kiros, Hinton 2016, eq. 3
 *     y = r * rstd * weight                                  RMS: Zhang, Sennrich 2019, eq. 4
 *
 *     rstd = 1 / sqrt(mean((r - mean)^2) + eps)              LAYER
 *     rstd = 1 / sqrt(mean(r^2) + eps)                       RMS
 *
 * where a mean is that of the row. depth is stochastic depth (Huang et al. 2016): of a sample, depth_rows rows
 * one below the other, all of the skip is kept and divided by 1 - rate, or nothing is; by the first word that
 * a Dropout draws for row `sample` and the columns' block NORM_DEPTH_BLOCK. Without a skip r is x itself and stays empty. RMS has neither bias nor
 * mean: both stay empty, and so does dbias. Its rows may be heads: where the weight is narrower than x, each
 * C columns of x are a row of their own, as queries and keys are normalized in Qwen3. x, y, dy and dr may
 * then be columns of a packed projection, and y may lie where x does, in inference only: the backward pass
 * reads x.
 *
 * Backward, with n = (r - mean) * rstd (RMS: r * rstd) and g = dy * weight:
 *
 *     dr       = rstd * (g - mean(g) - n * mean(g * n))      LAYER; written, or += with `accumulate`
 *     dr       = rstd * (g - n * mean(g * n))                RMS; likewise
 *     dskip    = depth(dropout(dr)), by the same masks       written
 *     dweight += sum over rows of dy * n
 *     dbias   += sum over rows of dy
 *     dr_sums += sum over rows of dr as it comes in
 *
 * dr is the gradient of x, and where nothing is dropped that of skip too. With `accumulate` it holds what
 * later users of r have left there; without, it may lie where dy does. dr_sums is for the layer that joins
 * the stream behind this norm: where the gradient of its output is dr as it comes in, the sums are its bias's
 * gradient. */
#pragma once

#include "kernels/dropout/dropout.h"

__BEGIN_DECLS

typedef enum { NORM_LAYER, NORM_RMS } NormKind;

#define NORM_DEPTH_BLOCK 0xFFFFFFFFu // no row has a block of columns of that number

/* x, skip, weight, bias, r and y have one dtype. Without a skip the x and y of RMS may be views, and heads*C
 * wide. */
typedef struct {
    NormKind kind;
    Tensor x;          // (..., C)
    Tensor skip;       // (..., C); may be empty
    Tensor weight;     // (C)
    Tensor bias;       // (C); RMS: empty
    Tensor r;          // (..., C); empty where skip is
    Tensor y;          // (..., C)
    Tensor mean, rstd; // (rows) fp32; RMS: mean is empty, and rstd (rows * heads)
    double eps;
    Dropout dropout;    // of skip; off where skip is empty
    Dropout depth;      // of its samples; likewise
    int64_t depth_rows; // of a sample, where depth is on
} NormForward;

typedef struct {
    const NormForward *forward;
    Tensor dy;       // (..., C); a view where x may be one
    Tensor dr;       // (..., C); likewise
    bool accumulate; // dr += instead of dr =
    Tensor dskip;    // (..., C); empty without dropout
    Tensor dweight;  // (C) fp32, +=
    Tensor dbias;    // (C) fp32, +=; empty where bias is
    Tensor dr_sums;  // (C) fp32, +=; empty unless accumulate, and with dropout or heads
} NormBackward;

/* r, y, mean and rstd are taken from `saved` where they are empty. */
CHECKED Status norm_forward(Ctx *ctx, NormForward *n, ArenaKind saved);
CHECKED Status norm_backward(Ctx *ctx, const NormBackward *n);

/* Whether anything is dropped from the skip. */
/* What PyTorch calls the parts of the naive form. */
TorchName norm_torch(const Ctx *ctx, const NormForward *n);

static inline bool norm_drops(const NormForward *n) {
    return dropout_on(&n->dropout) || dropout_on(&n->depth);
}

/* Rows of the weight's width in a row of x: 1, but where RMS norms heads. */
static inline int64_t norm_heads(const NormForward *n) {
    return tensor_width(n->x) / tensor_width(n->weight);
}

__END_DECLS
