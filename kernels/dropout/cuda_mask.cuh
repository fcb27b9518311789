/* cuda_mask: dropout masks in CUDA kernels. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/dropout/dropout.h"

/* A kernel argument. factor 0: no dropout. */
struct DropoutMask {
    uint32_t key0, key1, instance, least;
    float factor;
    const int32_t *draw;

    __host__ __device__ inline bool on() const { return factor != 0.f; }
};

static inline DropoutMask dropout_mask(const Dropout &d) {
    if (!dropout_on(&d)) return {};
    return {(uint32_t)d.seed,          (uint32_t)(d.seed >> 32),      d.instance, (uint32_t)(d.rate * 0x1p32),
            (float)(1 / (1 - d.rate)), data_of<const int32_t>(d.draw)};
}

/* Random words of columns 4 * block .. 4 * block + 3. */
__device__ inline uint4 dropout_words(const DropoutMask &m, uint32_t draw, int64_t row, int64_t block) {
    return philox(make_uint4((uint32_t)block, (uint32_t)row, m.instance, draw), m.key0, m.key1);
}

/* x *= keep * factor for N columns of a row, starting at `column`. */
template <int N>
__device__ inline void drop(const DropoutMask &m, uint32_t draw, int64_t row, int64_t column, float (&x)[N]) {
    if constexpr (N >= 4) { // column is then a multiple of 4
#pragma unroll
        for (int e = 0; e < N; e += 4) {
            const uint4 words = dropout_words(m, draw, row, (column + e) / 4);
            x[e] = words.x >= m.least ? x[e] * m.factor : 0.f;
            x[e + 1] = words.y >= m.least ? x[e + 1] * m.factor : 0.f;
            x[e + 2] = words.z >= m.least ? x[e + 2] * m.factor : 0.f;
            x[e + 3] = words.w >= m.least ? x[e + 3] * m.factor : 0.f;
        }
    } else {
#pragma unroll
        for (int e = 0; e < N; e++) {
            const uint4 words = dropout_words(m, draw, row, (column + e) / 4);
            const int64_t which = (column + e) % 4;
            const uint32_t word = which == 0   ? words.x
                                  : which == 1 ? words.y
                                  : which == 2 ? words.z
                                               : words.w;
            x[e] = word >= m.least ? x[e] * m.factor : 0.f;
        }
    }
}

/* The primitive of all naive forms: y = x * keep / (1 - rate), (rows, C) dense; y may be x. */
CHECKED Status dropout_apply(Ctx *ctx, const Dropout &dropout, Tensor x, Tensor y);
