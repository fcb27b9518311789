/* What the fused norm's two passes share: how the threads that hold a row of it add. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

static constexpr int WARP = 32;
static constexpr int BLOCK_THREADS = 256; // at most, where a block holds one row

/* The sum of a and of b over the row's group, to all its threads. `slot` alternates between calls, so that
 * one barrier is enough: nobody writes a slot that somebody may still read. */
template <bool ONE_WARP>
__device__ inline float2 group_sum(float a, float b, int slot) {
    a = warp_sum(a);
    b = warp_sum(b);
    if (ONE_WARP) return make_float2(a, b);
    __shared__ float2 warps[2][BLOCK_THREADS / WARP];
    if (threadIdx.x % WARP == 0) warps[slot][threadIdx.x / WARP] = make_float2(a, b);
    __syncthreads();
    float2 sum = warps[slot][0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++) {
        sum.x += warps[slot][w].x;
        sum.y += warps[slot][w].y;
    }
    return sum;
}
