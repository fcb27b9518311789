/* cuda_row: the arithmetic of a norm of one row, in the order of norm_rows (cuda_fused.cu) where a warp or a
 * block has the row. A kernel that normalizes a row on its way to something else has the same bits by it. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"

namespace norm_row {

constexpr int WARP = 32, THREADS_MOST = 256, EACH_MOST = 8; // packs of a thread

/* How a row of `packs` packs of 16 bytes is divided: thread t of `threads`, which are whole warps, has the
 * packs t, t + threads, and so on, at most `each`. Each thread adds up its packs, then the threads of a warp
 * are added, and then the warps. */
struct Order {
    int packs, threads, each;

    __host__ __device__ explicit Order(int packs) : packs(packs), each(1) {
        while (each < EACH_MOST && packs > each * THREADS_MOST) each *= 2;
        threads = int(divide_up(packs, each * WARP)) * WARP;
    }
    __host__ __device__ bool fits() const { return threads <= THREADS_MOST; }
};

/* The sum that a thread adds up: of values, or of their squares. */
template <bool SQUARES, int N>
__device__ inline float add_pack(float sum, const float (&x)[N]) {
#pragma unroll
    for (int e = 0; e < N; e++) sum = SQUARES ? fmaf(x[e], x[e], sum) : sum + x[e];
    return sum;
}
template <int N>
__device__ inline float add_centered(float sum, float mean, const float (&x)[N]) {
#pragma unroll
    for (int e = 0; e < N; e++) sum = fmaf(x[e] - mean, x[e] - mean, sum);
    return sum;
}
/* inverse = 1 / columns */
__device__ inline float rstd_of(float squares, float inverse, float eps) {
    return rsqrtf(fmaf(squares, inverse, eps));
}
/* x becomes its norm; bias is read only for a layer norm. */
template <bool LAYER, int N>
__device__ inline void normalize(float (&x)[N], float mean, float rstd, const float (&weight)[N],
                                 const float (&bias)[N]) {
#pragma unroll
    for (int e = 0; e < N; e++)
        x[e] = LAYER ? fmaf((x[e] - mean) * rstd, weight[e], bias[e]) : x[e] * rstd * weight[e];
}

} // namespace norm_row
