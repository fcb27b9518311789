/* float8: e4m3, an 8-bit number with a sign, a 4-bit exponent of bias 7 and a 3-bit fraction (Micikevicius et
 * al. 2022, "FP8 formats for deep learning", table 1). It has no infinity. The largest number is 448, the
 * smallest normal number 2^-6, the smallest number 2^-9. NaN has all bits after the sign set. */
#pragma once

#include "base/bfloat16.h"

#include <math.h>

/* Rounds to nearest, ties to even. Above 464, where 448's rounding interval ends, the result is NaN. */
static inline uint8_t e4m3_from_float(float value) {
    const uint8_t sign = (uint8_t)(bits_of_float(value) >> 24 & 0x80);
    const float magnitude = fabsf(value);
    if (!(magnitude <= 464)) return sign | 0x7F;
    if (magnitude <
        0x1p-6f) // adding 2^14 rounds to a multiple of 2^-9, and the lowest bits then count these multiples
        return sign | (uint8_t)bits_of_float(magnitude + 0x1p14f);
    const uint32_t bits = bits_of_float(magnitude);
    return sign | (uint8_t)(((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3));
}

/* The same, except that finite numbers beyond 448 become 448. */
static inline uint8_t e4m3_saturated(float value) {
    return e4m3_from_float(isfinite(value) ? fmaxf(fminf(value, 448), -448) : value);
}

static inline float e4m3_to_float(uint8_t code) {
    const uint32_t sign = (uint32_t)(code & 0x80) << 24, rest = code & 0x7F;
    if (rest == 0x7F) return NAN;
    const float magnitude = rest < 8 ? (float)rest * 0x1p-9f : float_of_bits((rest + (120 << 3)) << 20);
    return float_of_bits(sign | bits_of_float(magnitude));
}

/* The largest power of two that scales `magnitude` to at most 448. It is at most 2^117, so that quotients
 * stay normal in fp32 and bf16. NaN if the magnitude is not finite. */
static inline float e4m3_scale(float magnitude) {
    const uint32_t bits = bits_of_float(magnitude), exponent = bits >> 23, fraction = bits & 0x7FFFFF;
    if (exponent == 255) return NAN;
    const uint32_t scale = 262 - exponent - (fraction > 0x600000); // 448 is 1.75 * 2^8
    return float_of_bits((scale < 244 ? scale : 244) << 23);
}
