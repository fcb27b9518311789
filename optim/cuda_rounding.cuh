/* cuda_rounding: moments in bf16 (adamw.h). */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/philox.cuh"

/* Random words of elements [4 * block, 4 * block + 4) of the flat space. */
__device__ inline uint4 rounding_words(int64_t block, float updates) {
    return philox(make_uint4((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)updates, 0), 0, 0);
}

/* bfloat16_stochastic of base/bfloat16.h. */
__device__ inline bf16 round_stochastic(float value, uint32_t random16) {
    const uint32_t bits = __float_as_uint(value), up = (bits + random16) >> 16;
    return __ushort_as_bfloat16((unsigned short)((up & 0x7F80) == 0x7F80 ? bits >> 16 : up));
}
