/* weight: the formula of a weight (sample.h), for the C and CUDA compilers. */
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
#else
#define ON_BOTH
#endif

/* 2^30 * 2^(below * sharpness), rounded, for below <= 0. Every operation and every fused multiply-add is
 * explicit, so that the bits are equal everywhere. The Taylor series of 2^f is exact to the last fp32 bit
 * for |f| <= 1/2. */
ON_BOTH static inline int32_t sample_weight(float below, float sharpness) {
    const float z = fmaxf(below * sharpness, -40.0f);
    const int32_t n = (int32_t)(z - 0.5f); // the nearest integer
    const float f = z - (float)n;
    float power = fmaf(1.5252734e-5f, f, 1.5403530e-4f);
    power = fmaf(power, f, 1.3333558e-3f);
    power = fmaf(power, f, 9.6181291e-3f);
    power = fmaf(power, f, 5.5504109e-2f);
    power = fmaf(power, f, 2.4022651e-1f);
    power = fmaf(power, f, 6.9314718e-1f);
    power = fmaf(power, f, 1.0f);
    const union {
        int32_t bits;
        float value;
    } scale = {(n + 30 + 127) << 23}; // 2^(n + 30)
    return (int32_t)(power * scale.value + 0.5f);
}
