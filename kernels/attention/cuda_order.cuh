/* cuda_order: the order in which a query's keys are added under FUSE_INVARIANT, in bf16 on tensor cores. Keys
 * are divided into tiles of ORDER_KEYS. A tile's scores have its own maximum as their base, its probabilities
 * are added in four quarters, and the values are added key by key, 16 at once. The results of tiles are
 * merged from the first to the last. So a row's bits depend neither on the rows beside it nor on the kernel:
 * the tile of a prompt (cuda_sm90_forward.cu) and those of a token (cuda_decode_tensor.cu,
 * cuda_decode_token.cu) have the same. */
#pragma once

#include "kernels/cuda/instructions.cuh"

namespace attention {

constexpr int ORDER_KEYS = 64;

/* The base of scores that have this maximum, in powers of 2; -inf if all are masked. */
__device__ inline float base_of(float maximum, float scale) {
    return __fmul_rn(maximum, scale);
}
/* 2^(score * scale - base) */
__device__ inline float probability(float score, float scale, float base) {
    return gpu::power_of_two(fmaf(score, scale, base == -INFINITY ? 0.0f : -base));
}
/* The sum of a thread's probabilities in a quarter of a tile. */
template <int N>
__device__ inline float quarter_sum(const float (&s)[N][4], int first, int count, int half) {
    float sums[2] = {};
#pragma unroll
    for (int n = 0; n < N; n++)
        if (n >= first && n < first + count) sums[0] += s[n][2 * half], sums[1] += s[n][2 * half + 1];
    return sums[0] + sums[1];
}

/* The factors of earlier tiles' sums and of the next one's. */
struct Merge {
    float before, next;

    /* `base` becomes that of all tiles. */
    __device__ Merge(float &base, float next_base) {
        const float both = fmaxf(base, next_base), off = both == -INFINITY ? 0.0f : both;
        before = gpu::power_of_two(base - off);
        next = gpu::power_of_two(next_base - off);
        base = both;
    }
    __device__ float operator()(float sum, float next_sum) const {
        return fmaf(next_sum, next, __fmul_rn(sum, before));
    }
};

} // namespace attention
