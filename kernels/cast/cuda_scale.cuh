/* scale: the scale of a tensor on the GPU, from the bits of its largest magnitude, and conversions to
 * e4m3. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

#include <cuda_fp8.h>

/* Compares bits: among positive numbers and NaN the larger one has the larger bits. */
struct Larger {
    __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

/* Same as e4m3_scale of base/float8.h. */
__device__ __forceinline__ float e4m3_scale(uint32_t magnitude) {
    const uint32_t exponent = magnitude >> 23, fraction = magnitude & 0x7FFFFF;
    if (exponent == 255) return __uint_as_float(0x7FFFFFFF); // NaN
    return __uint_as_float(min(262 - exponent - (fraction > 0x600000), 244u) << 23);
}

/* NaN if x is not finite: the conversion instructions would turn infinity into 448. A zero keeps its sign. */
__device__ __forceinline__ float finite_or_nan(float x) {
    return x - (x - x);
}

__device__ __forceinline__ uint8_t e4m3_of(float x) {
    return __nv_cvt_float_to_fp8(finite_or_nan(x), __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ uint32_t e4m3_of(float a, float b, float c, float d) {
    const float2 first = make_float2(finite_or_nan(a), finite_or_nan(b));
    const float2 second = make_float2(finite_or_nan(c), finite_or_nan(d));
    const uint32_t low = __nv_cvt_float2_to_fp8x2(first, __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(second, __NV_SATFINITE, __NV_E4M3);
    return high << 16 | low;
}

__device__ __forceinline__ float e4m3_value(uint8_t code) {
    return __half2float(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
}

/* Inputs and outputs of a cast's kernels other than the matrices. `given` and `seen` may be NULL. */
struct CastScale {
    const float *given;
    const uint32_t *maximum; // bits of the largest magnitude; used unless a scale is given
    float *scale;
    float *seen;

    __device__ __forceinline__ float value() const { return given ? *given : e4m3_scale(*maximum); }

    /* Records the block's largest magnitude, given as bits; one thread of each block calls it. It is a
     * maximum of integers, so the order does not matter. */
    __device__ __forceinline__ void leave(float s, uint32_t most, bool first) const {
        if (first) *scale = 1 / s;
        if (!seen) return;
        atomicMax(reinterpret_cast<uint32_t *>(seen), most);
        if (__uint_as_float(most) * s > 448) seen[1] = 1;
    }
};
