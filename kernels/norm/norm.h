/* norm: the residual add and normalization over the last axis, of one of two kinds:
 *
 *     r = x + depth(dropout(skip))
 *     y = (r - mean) * rstd * weight + bias                  LAYER: Ba, Kiros, Hinton 2016, eq. 3
 *     y = r * rstd * weight                                  RMS: Zhang, Sennrich 2019, eq. 4
 *
 *     rstd = 1 / sqrt(mean((r - mean)^2) + eps)              LAYER
 *     rstd = 1 / sqrt(mean(r^2) + eps)                       RMS
 *
 * where means are over a row. depth is stochastic depth (Huang et al. 2016) per sample, a group of depth_rows
 * consecutive rows: either the whole skip is kept and divided by 1 - rate, or it is dropped. The decision is
 * the first word that a Dropout draws for row `sample` and block NORM_DEPTH_BLOCK of columns. Without a skip,
 * r is x itself and stays empty. RMS has neither bias nor mean: both stay empty, and so does dbias. RMS can
 * normalize heads: if the weight is narrower than x, each C columns of x are normalized as a separate row, as
 * for queries and keys in Qwen3. x, y, dy and dr may then be columns of a packed projection. In inference y
 * may share memory with x; the backward pass reads x.
 *
 * Backward, with n = (r - mean) * rstd (RMS: r * rstd) and g = dy * weight:
 *
 *     dr       = rstd * (g - mean(g) - n * mean(g * n))      LAYER; written, or += with `accumulate`
 *     dr       = rstd * (g - n * mean(g * n))                RMS; likewise
 *     dskip    = depth(dropout(dr)), by the same masks       written
 *     dweight += sum over rows of dy * n
 *     dbias   += sum over rows of dy
 *     dr_sums += sum over rows of dr before anything is added
 *
 * dr is the gradient of x, and without dropout also that of skip. With `accumulate` it already holds the
 * gradients of r's later readers; otherwise it may share memory with dy. dr_sums serves the next layer that
 * adds to the residual stream: the incoming dr is the gradient of its output, so the sums are the gradient of
 * its bias. */
#pragma once

#include "kernels/dropout/dropout.h"

__BEGIN_DECLS

typedef enum { NORM_LAYER, NORM_RMS } NormKind;

#define NORM_DEPTH_BLOCK 0xFFFFFFFFu // an index that no block of columns has

/* x, skip, weight, bias, r and y have the same dtype. For RMS without a skip, x and y may be views, heads*C
 * wide. */
typedef struct {
    NormKind kind;
    Tensor x;          // (..., C)
    Tensor skip;       // (..., C); may be empty
    Tensor weight;     // (C)
    Tensor bias;       // (C); RMS: empty
    Tensor r;          // (..., C); empty if skip is
    Tensor y;          // (..., C)
    Tensor mean, rstd; // (rows) fp32; RMS: mean is empty, and rstd (rows * heads)
    double eps;
    Dropout dropout;    // dropout of skip; off if skip is empty
    Dropout depth;      // stochastic depth of the skip's samples; off if skip is empty
    int64_t depth_rows; // rows per sample, with depth
} NormForward;

typedef struct {
    const NormForward *forward;
    Tensor dy;       // (..., C); a view if x may be one
    Tensor dr;       // (..., C); a view if x may be one
    bool accumulate; // dr += instead of dr =
    Tensor dskip;    // (..., C); empty without dropout
    Tensor dweight;  // (C) fp32, +=
    Tensor dbias;    // (C) fp32, +=; empty if bias is
    Tensor dr_sums;  // (C) fp32, +=; empty unless accumulate, and with dropout or heads
} NormBackward;

/* If they are empty, r, y, mean and rstd are allocated from `saved`. */
CHECKED Status norm_forward(Ctx *ctx, NormForward *n, ArenaKind saved);
CHECKED Status norm_backward(Ctx *ctx, const NormBackward *n);

/* Whether dropout or stochastic depth drops anything from the skip. */
/* PyTorch's names of the naive form's primitives. */
TorchName norm_torch(const Ctx *ctx, const NormForward *n);

static inline bool norm_drops(const NormForward *n) {
    return dropout_on(&n->dropout) || dropout_on(&n->depth);
}

/* Heads per row of x: x's width / the weight's, which is 1 unless RMS normalizes heads. */
static inline int64_t norm_heads(const NormForward *n) {
    return tensor_width(n->x) / tensor_width(n->weight);
}

__END_DECLS
