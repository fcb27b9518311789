/* norm: r = x + dropout(skip);  y = (r - mean(r)) * rstd(r) * weight + bias, over the last axis, where
 * mean and variance are those of the row (biased), rstd = 1 / sqrt(variance + eps). Ba, Kiros, Hinton
 * 2016, eq. 3. With an empty skip, r is x itself: the caller leaves r empty and the backward pass reads x.
 * Backward, with n = (r - mean) * rstd and g = dy * weight:
 *     dr = rstd * (g - mean(g) - n * mean(g * n)),   dweight += sum of dy * n,   dbias += sum of dy.
 * dr is the gradient of x, and of skip where nothing is dropped; it is written (accumulate = false: first
 * writer) or added to what later users of r have left there (accumulate = true). With dropout the gradient
 * of skip, dskip = dropout(dr) by the same mask, is written apart. With dr_sums, what later users left is
 * also summed over its rows: where the gradient of the layer that joins the stream behind this norm is dr
 * itself, that is its bias's. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H

#include "kernels/dropout/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor x, skip;      // (..., C); skip may be empty
    Tensor weight, bias; // (C)
    Tensor r, y;         // (..., C); r empty where skip is
    Tensor mean, rstd;   // (rows) fp32
    double eps;
    Dropout dropout; // of skip; off where skip is empty
} NormForward;

typedef struct {
    const NormForward *forward;
    Tensor dy;             // (..., C)
    Tensor dr;             // (..., C)
    bool accumulate;       // dr += instead of dr =
    Tensor dskip;          // (..., C); empty without dropout
    Tensor dweight, dbias; // (C) fp32, +=
    Tensor dr_sums;        // (C) fp32, += sums over rows of dr as it comes in; empty unless accumulate
} NormBackward;

CHECKED Status norm_forward(Ctx *ctx, const NormForward *n);
CHECKED Status norm_backward(Ctx *ctx, const NormBackward *n);

#ifdef __cplusplus
}
#endif
#endif
