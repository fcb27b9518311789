/* cuda_keys: one query against many keys. Groups of lanes process keys in parallel, each with its own online
 * softmax; their results are merged in a fixed order. */
#pragma once

#include "kernels/cuda/seen.cuh"
#include "kernels/decode/cuda_token.cuh"

namespace decode {
namespace {

constexpr int COLUMNS = 8; // columns of a head per thread
template <class T>
constexpr int UNROLL = 2 * VECTOR<T> / 4; // keys in flight per thread

/* COLUMNS neighbours in memory order. */
template <class T>
struct Piece {
    Words words[COLUMNS * sizeof(T) / 16];

    __device__ inline void load(const T *from) {
#pragma unroll
        for (int i = 0; i < int(sizeof words / 16); i++) words[i] = load_words(from + i * VECTOR<T>);
    }
    __device__ inline void unpack_to(float (&x)[COLUMNS]) const {
        constexpr int N = VECTOR<T>;
#pragma unroll
        for (int i = 0; i < COLUMNS / N; i++) {
            float some[N];
            unpack<T>(words[i], some);
#pragma unroll
            for (int e = 0; e < N; e++) x[i * N + e] = some[e];
        }
    }
};

/* Adds UNROLL keys, STEP apart from `key` on, to the online softmax of query q. */
template <class T, int LANES, int STEP>
__device__ inline void add_scored_keys(Seen<COLUMNS> &seen, const float (&q)[COLUMNS], int key, int end,
                                       const Piece<T> (&k)[UNROLL<T>], const Piece<T> (&v)[UNROLL<T>]) {
    float scores[UNROLL<T>];
#pragma unroll
    for (int u = 0; u < UNROLL<T>; u++) {
        float values[COLUMNS];
        k[u].unpack_to(values);
        scores[u] = 0.f;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) scores[u] = fmaf(q[i], values[i], scores[u]);
        scores[u] = group_sum<LANES>(scores[u]);
        if (key + u * STEP >= end) scores[u] = -INFINITY;
    }
    add_keys(seen, scores, [&](int u, float(&values)[COLUMNS]) { v[u].unpack_to(values); });
}

/* Online softmax results, side by side: y of D columns, then maximum and sum; whole words of 16 bytes. */
template <int D>
using SeenRow = float[D + 4];

/* Merges N columns of COUNT results, in their order. */
template <int D, int COUNT, int N>
__device__ inline void merge_rows(const SeenRow<D> (&rows)[COUNT], int column, float &maximum, float &sum,
                                  float (&y)[N]) {
    maximum = -INFINITY;
#pragma unroll
    for (int i = 0; i < COUNT; i++) maximum = fmaxf(maximum, rows[i][D]);
    const float base = maximum == -INFINITY ? 0.f : maximum;
    sum = 0.f;
#pragma unroll
    for (int e = 0; e < N; e++) y[e] = 0.f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float weight = exp2f(rows[i][D] - base);
        float own[N];
        load_floats<N>(&rows[i][column], own);
        sum = fmaf(weight, rows[i][D + 1], sum);
#pragma unroll
        for (int e = 0; e < N; e++) y[e] = fmaf(weight, own[e], y[e]);
    }
}

/* The next UNROLL keys of the group that begins at `key`, STEP keys apart. */
template <class T, int STEP>
__device__ inline void load_keys(const T *k, const T *v, int row, int key, int end,
                                 Piece<T> (&k_rows)[UNROLL<T>], Piece<T> (&v_rows)[UNROLL<T>]) {
#pragma unroll
    for (int u = 0; u < UNROLL<T>; u++) {
        k_rows[u] = v_rows[u] = {};
        if (key + u * STEP >= end) continue;
        k_rows[u].load(k + int64_t(key + u * STEP) * row);
        v_rows[u].load(v + int64_t(key + u * STEP) * row);
    }
}

} // namespace
} // namespace decode
