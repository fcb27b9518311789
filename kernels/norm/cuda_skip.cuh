/* cuda_skip: dropout and stochastic depth of a norm's skip in the CUDA forms. */
#pragma once

#include "kernels/dropout/cuda_mask.cuh"
#include "kernels/norm/norm.h"

/* Passed to kernels by value. */
struct SkipMask {
    DropoutMask elements, samples;
    int64_t rows; // rows per sample

    __host__ __device__ inline bool on() const { return elements.on() || samples.on(); }
};

static inline SkipMask skip_mask(const NormForward *n) {
    return {dropout_mask(n->dropout), dropout_mask(n->depth), n->depth_rows};
}

/* The factor of a sample under stochastic depth. */
__device__ inline float sample_factor(const SkipMask &m, int64_t row) {
    const DropoutMask &s = m.samples;
    return dropout_words(s, (uint32_t)*s.draw, row / m.rows, NORM_DEPTH_BLOCK).x >= s.least ? s.factor : 0.f;
}

/* N columns of a row of the skip, from `column` on. */
template <int N>
__device__ inline void drop_skip(const SkipMask &m, int64_t row, int64_t column, float (&x)[N]) {
    if (m.elements.on()) drop<N>(m.elements, (uint32_t)*m.elements.draw, row, column, x);
    if (!m.samples.on()) return;
    const float factor = sample_factor(m, row);
#pragma unroll
    for (int e = 0; e < N; e++) x[e] *= factor;
}
