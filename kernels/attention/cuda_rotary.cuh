/* cuda_rotary: rotary positions (attention.h), applied in place and once, so that keys are not rotated again
 * for every tile of queries that reads them. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/launch.cuh"

/* Rotates the heads of q and k by the angles of their positions; for gradients, rotates back. Without pasts,
 * `past` is the number of cached rows in device memory; NULL: a->past. */
CHECKED Status rotate_heads(Ctx *ctx, const AttentionForward *a, Tensor q, Tensor k, const int *past,
                            bool back);

/* Writes the cosine and sine of each angle of T positions from a->past on to `angles` (T, D) fp32, in
 * pairs. */
CHECKED Status rotary_angles(Ctx *ctx, const AttentionForward *a, Tensor angles);

/* One of a pair, rotated: the sine is negative for the low one. */
__device__ inline float rotated(float own, float other, float cosine, float sine) {
    return fmaf(own, cosine, __fmul_rn(other, sine));
}
/* Rotates a pair by an angle's cosine (x) and sine (y). */
__device__ inline void rotate_pair(float &low, float &high, float2 angle) {
    const float turned = rotated(low, high, angle.x, -angle.y);
    high = rotated(high, low, angle.x, angle.y);
    low = turned;
}
