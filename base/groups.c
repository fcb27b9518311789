#include "base/groups.h"

#include "base/bfloat16.h"

#include <math.h>
#include <string.h>

typedef struct {
    float code[GROUP]; // whole numbers
    float scale;
} Group;

/* The number with the largest magnitude, including its sign. */
static float extreme_of(const float *x) {
    float most = 0, least = 0;
#pragma omp simd reduction(max : most) reduction(min : least)
    for (int i = 0; i < GROUP; i++) {
        most = x[i] > most ? x[i] : most;
        least = x[i] < least ? x[i] : least;
    }
    return most > -least ? most : least;
}

/* Codes for a scale, and the sum of their squared errors. A scale too small to be divided by leaves zeros. */
static float round_group(const float *x, float scale, float least, float most, Group *group) {
    group->scale = bfloat16_to_float(bfloat16_from_float(scale));
    const float inverse = fabsf(group->scale) >= 0x1p-120f ? 1 / group->scale : 0;
    float error = 0;
#pragma omp simd reduction(+ : error)
    for (int i = 0; i < GROUP; i++) {
        const float code = rintf(x[i] * inverse), kept = code < least ? least : code > most ? most : code;
        const float off = x[i] - kept * group->scale;
        group->code[i] = kept;
        error += off * off;
    }
    return error;
}

static void quantize8(const float *x, int8_t *codes, uint16_t *scale) {
    Group group;
    round_group(x, fabsf(extreme_of(x)) / 127, -127, 127, &group);
    for (int i = 0; i < GROUP; i++) codes[i] = (int8_t)group.code[i];
    *scale = bfloat16_from_float(group.scale);
}

/* The scales to try map -8 to the extreme, or to a value slightly below or above it. */
static void quantize4(const float *x, uint8_t *codes, uint16_t *scale) {
    static const float extremes[] = {8, 7.5F, 7, 6.5F, 6, 8.5F, 9};
    const float extreme = extreme_of(x);
    Group best, group;
    float least = round_group(x, -extreme / extremes[0], -8, 7, &best);
    for (size_t i = 1; i < sizeof extremes / sizeof *extremes; i++) {
        const float error = round_group(x, -extreme / extremes[i], -8, 7, &group);
        if (error >= least) continue;
        least = error;
        best = group;
    }
    for (int j = 0; j < GROUP / 2; j++)
        codes[j] = (uint8_t)((int)best.code[j] + 8 + ((int)best.code[j + GROUP / 2] + 8) * 16);
    *scale = bfloat16_from_float(best.scale);
}

void groups_quantize(Dtype dtype, const float *values, int64_t count, void *codes, uint16_t *scales) {
    for (int64_t g = 0; g < count / GROUP; g++) {
        if (dtype == I8)
            quantize8(values + g * GROUP, (int8_t *)codes + g * GROUP, &scales[g]);
        else
            quantize4(values + g * GROUP, (uint8_t *)codes + g * GROUP / 2, &scales[g]);
    }
}

void groups_codes(Dtype dtype, const void *codes, int64_t group, int8_t unpacked[GROUP]) {
    const uint8_t *from = (const uint8_t *)codes + dtype_bytes(dtype, group * GROUP);
    if (dtype == I8) {
        memcpy(unpacked, from, GROUP);
        return;
    }
    for (int j = 0; j < GROUP / 2; j++) {
        unpacked[j] = (int8_t)((from[j] & 15) - 8);
        unpacked[j + GROUP / 2] = (int8_t)((from[j] >> 4) - 8);
    }
}
