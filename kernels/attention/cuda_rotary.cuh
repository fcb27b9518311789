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

/* Rotates a pair by an angle's cosine (x) and sine (y). */
__device__ inline void rotate_pair(float &low, float &high, float2 angle) {
    const float turned = fmaf(low, angle.x, -__fmul_rn(high, angle.y));
    high = fmaf(high, angle.x, __fmul_rn(low, angle.y));
    low = turned;
}
