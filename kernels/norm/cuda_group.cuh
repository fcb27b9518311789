/* cuda_group: sums over the threads that hold a row, for both passes of the fused norm. */
#pragma once

#include "kernels/norm/cuda_row.cuh"

static constexpr int WARP = norm_row::WARP;
static constexpr int BLOCK_THREADS = norm_row::THREADS_MOST; // if a block holds one row

/* Sums a and b over the row's group; every thread gets the sums. `slot` alternates between calls, so that one
 * barrier is enough: no thread overwrites a slot that another may still read. */
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
