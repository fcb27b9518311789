/* float8: e4m3, a number in 8 bits: a sign, an exponent of 4 bits with a bias of 7, a fraction of 3. It has no infinity:
 * its largest number is 448, and the code with all bits set behind the sign is NaN (Micikevicius et al. 2022, "FP8
 * formats for deep learning", table 1). The smallest normal number is 2^-6, the smallest of all 2^-9. */
#pragma once

#include "base/bfloat16.h"

#include <math.h>

/* Rounds to nearest, ties to even. NaN for what is beyond 464, the end of 448's interval. */
static inline uint8_t e4m3_from_float(float value) {
    const uint8_t sign = (uint8_t)(bits_of_float(value) >> 24 & 0x80);
    const float magnitude = fabsf(value);
    if (!(magnitude <= 464)) return sign | 0x7F;
    if (magnitude < 0x1p-6f) // the addition rounds to a multiple of 2^-9, which the lowest bits then count
        return sign | (uint8_t)bits_of_float(magnitude + 0x1p14f);
    const uint32_t bits = bits_of_float(magnitude);
    return sign | (uint8_t)(((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3));
}

/* The same, but 448 for what is finite and beyond it. */
static inline uint8_t e4m3_saturated(float value) {
    return e4m3_from_float(isfinite(value) ? fmaxf(fminf(value, 448), -448) : value);
}

static inline float e4m3_to_float(uint8_t code) {
    const uint32_t sign = (uint32_t)(code & 0x80) << 24, rest = code & 0x7F;
    if (rest == 0x7F) return NAN;
    const float magnitude = rest < 8 ? (float)rest * 0x1p-9f : float_of_bits((rest + (120 << 3)) << 20);
    return float_of_bits(sign | bits_of_float(magnitude));
}

/* The largest power of two that brings a magnitude to 448 at most, but 2^117 for smaller ones, so that what is divided by it
 * again is a normal fp32 and bf16. NaN where the magnitude is not finite. */
static inline float e4m3_scale(float magnitude) {
    const uint32_t bits = bits_of_float(magnitude), exponent = bits >> 23, fraction = bits & 0x7FFFFF;
    if (exponent == 255) return NAN;
    const uint32_t scale = 262 - exponent - (fraction > 0x600000); // 448 is 1.75 * 2^8
    return float_of_bits((scale < 244 ? scale : 244) << 23);
}
