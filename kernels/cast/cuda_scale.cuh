/* scale: the scale of a tensor on the GPU, from the bits of its largest magnitude; and e4m3's conversions there. */
#pragma once

#include "kernels/cuda/packs.cuh"

#include <cuda_fp8.h>

/* Bits of the largest magnitude of x: of positive numbers and NaN the larger one has the larger bits, so that the order
 * in which blocks come does not matter. Takes the scratch; launches unless measuring. */
CHECKED Status cast_maximum(Ctx *ctx, Tensor x, Tensor *maximum);

/* e4m3_scale of base/float8.h. */
__device__ __forceinline__ float e4m3_scale(uint32_t magnitude) {
    const uint32_t exponent = magnitude >> 23, fraction = magnitude & 0x7FFFFF;
    if (exponent == 255) return __uint_as_float(0x7FFFFFFF); // NaN
    return __uint_as_float(min(262 - exponent - (fraction > 0x600000), 244u) << 23);
}

__device__ __forceinline__ uint8_t e4m3_of(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3);
}

__device__ __forceinline__ uint32_t e4m3_of(float a, float b, float c, float d) {
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
    return high << 16 | low;
}

__device__ __forceinline__ float e4m3_value(uint8_t code) {
    return __half2float(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
}
