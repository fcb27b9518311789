/* bfloat16: the upper half of an fp32. Rounding is to nearest, ties to even, or stochastic by 16 random
 * bits: up with a probability proportional to the discarded half, so that the expected value is exact.
 * Stochastic rounding never rounds up to infinity. A NaN stays a NaN. */
#pragma once

#include <stdint.h>
#include <string.h>

/* A bfloat16 in memory. A struct prevents arithmetic on its bits by mistake. */
typedef struct {
    uint16_t bits;
} bf16;

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bfloat16_to_float(uint16_t half) {
    return float_of_bits((uint32_t)half << 16);
}

static inline uint16_t bfloat16_from_float(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t bfloat16_stochastic(float value, uint32_t random16) {
    uint32_t bits = bits_of_float(value);
    uint32_t up = (bits + random16) >> 16;
    return (uint16_t)((up & 0x7F80) == 0x7F80 ? bits >> 16 : up);
}
