/* norm: the residual add and layer normalization over the last axis. Ba, Kiros, Hinton 2016, eq. 3.
 *
 *     r = x + dropout(skip)
 *     y = (r - mean) * rstd * weight + bias
 *
 * where mean and variance are those of the row (biased), and rstd = 1 / sqrt(variance + eps). Without a skip
 * r is x itself and stays empty.
 *
 * Backward, with n = (r - mean) * rstd and g = dy * weight:
 *
 *     dr       = rstd * (g - mean(g) - n * mean(g * n))      written, or += with `accumulate`
 *     dskip    = dropout(dr), by the same mask               written
 *     dweight += sum over rows of dy * n
 *     dbias   += sum over rows of dy
 *     dr_sums += sum over rows of dr as it comes in
 *
 * dr is the gradient of x, and where nothing is dropped that of skip too. With `accumulate` it holds what
 * later users of r have left there. dr_sums is for the layer that joins the stream behind this norm: where
 * the gradient of its output is dr as it comes in, the sums are its bias's gradient. */
#pragma once

#include "kernels/dropout/dropout.h"

__BEGIN_DECLS

/* x, skip, weight, bias, r and y have one dtype. */
typedef struct {
    Tensor x;          // (..., C)
    Tensor skip;       // (..., C); may be empty
    Tensor weight;     // (C)
    Tensor bias;       // (C)
    Tensor r;          // (..., C); empty where skip is
    Tensor y;          // (..., C)
    Tensor mean, rstd; // (rows) fp32
    double eps;
    Dropout dropout; // of skip; off where skip is empty
} NormForward;

typedef struct {
    const NormForward *forward;
    Tensor dy;       // (..., C)
    Tensor dr;       // (..., C)
    bool accumulate; // dr += instead of dr =
    Tensor dskip;    // (..., C); empty without dropout
    Tensor dweight;  // (C) fp32, +=
    Tensor dbias;    // (C) fp32, +=
    Tensor dr_sums;  // (C) fp32, +=; empty unless accumulate, and with dropout
} NormBackward;

/* r, y, mean and rstd are taken from `saved` where they are empty. */
CHECKED Status norm_forward(Ctx *ctx, NormForward *n, ArenaKind saved);
CHECKED Status norm_backward(Ctx *ctx, const NormBackward *n);

__END_DECLS
