/* cuda_rotary: rotary positions (attention.h), applied where queries and keys lie: once, rather than to keys
 * anew for every tile of queries that reads them. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/launch.cuh"

/* Turns the heads of q and k by the angles of their positions, or, for the gradients of both, back. `past` in
 * device memory counts the rows in the cache; NULL: a->past does. */
CHECKED Status rotate_heads(Ctx *ctx, const AttentionForward *a, Tensor q, Tensor k, const int *past,
                            bool back);

/* The cosine and sine of each angle of T positions from a's past on, to `angles` (T, D) fp32, in pairs. */
CHECKED Status rotary_angles(Ctx *ctx, const AttentionForward *a, Tensor angles);
