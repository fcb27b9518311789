/* cuda_rotary: rotary positions (attention.h), applied where queries and keys lie: once, rather than to keys
 * anew for every tile of queries that reads them. */
#ifndef KERNELS_ATTENTION_CUDA_ROTARY_CUH
#define KERNELS_ATTENTION_CUDA_ROTARY_CUH

#include "kernels/attention/attention.h"
#include "kernels/cuda/launch.cuh"

/* Turns the heads of x, q or k of `a`, by the angles of their positions, or, for their gradients, back. Rows
 * in the cache are counted by `past_on_device` where it is not NULL, else by a->past. */
CHECKED Status rotate_heads(Ctx *ctx, const AttentionForward *a, Tensor x, const int *past_on_device,
                            bool back);

#endif
