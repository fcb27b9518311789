/* reduce: reductions over a warp or a block, with the same bits in every lane and in every run. */
#pragma once

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class T, class Combine>
__device__ inline T warp_reduce(T x, Combine combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    return x;
}

template <class T>
__device__ inline T warp_sum(T x) {
    return warp_reduce(x, Sum());
}
__device__ inline float warp_max(float x) {
    return warp_reduce(x, Max());
}

/* Over LANES neighbouring lanes, a power of 2; every lane gets the sum. */
template <int LANES>
__device__ inline float lanes_sum(float x) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

/* Over the four neighbouring lanes that hold a row of a product's sums (cuda/instructions.cuh). */
template <class Combine>
__device__ inline float quad_reduce(float x, Combine combine) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
    return quad_reduce(x, Sum());
}
__device__ inline float quad_max(float x) {
    return quad_reduce(x, Max());
}

/* For a one-dimensional block of Threads threads, a multiple of 32; all of them must call it. */
template <int Threads, class T, class Combine>
__device__ inline T block_reduce(T x, Combine combine) {
    static_assert(Threads % 32 == 0 && Threads <= 1024, "whole warps");
    __shared__ T of_warp[Threads / 32];
    x = warp_reduce(x, combine);
    if constexpr (Threads == 32) return x;
    __syncthreads(); // the caller may overwrite of_warp afterwards
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
#pragma unroll
    for (int warp = 1; warp < Threads / 32; warp++) x = combine(x, of_warp[warp]);
    return x;
}

template <int Threads, class T>
__device__ inline T block_sum(T x) {
    return block_reduce<Threads>(x, Sum());
}
template <int Threads>
__device__ inline float block_max(float x) {
    return block_reduce<Threads>(x, Max());
}
