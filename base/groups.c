#include "base/groups.h"

#include "base/bfloat16.h"

#include <math.h>
#include <string.h>

const int8_t groups_levels[LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

typedef struct {
    float code[GROUP];
    int32_t stored[GROUP]; // I4: the level's number
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

/* Sets the scale; returns its inverse. If the scale is too small to divide by, all codes become zero. */
static float set_scale(Group *group, float scale) {
    const float rounded = bfloat16_to_float(bfloat16_from_float(scale));
    group->scale = fabsf(rounded) >= 0x1p-120f ? rounded : 0;
    return group->scale != 0 ? 1 / group->scale : 0;
}

static void quantize8(const float *x, Group *group) {
    const float inverse = set_scale(group, fabsf(extreme_of(x)) / 127);
    for (int i = 0; i < GROUP; i++) {
        const float code = rintf(x[i] * inverse);
        group->stored[i] = (int32_t)(code < -127 ? -127 : code > 127 ? 127 : code);
    }
}

/* Selects the nearest levels; returns the sum of the squared errors, each times its importance. */
static float round4(const float *x, const float *importance, float scale, Group *group) {
    const float inverse = set_scale(group, scale);
    float error = 0;
    for (int i = 0; i < GROUP; i++) group->code[i] = groups_levels[0], group->stored[i] = 0;
    for (int l = 1; l < LEVELS; l++) {
        const float middle = (float)(groups_levels[l - 1] + groups_levels[l]) / 2, level = groups_levels[l];
#pragma omp simd
        for (int i = 0; i < GROUP; i++) {
            const bool above = x[i] * inverse > middle;
            group->code[i] = above ? level : group->code[i];
            group->stored[i] += above;
        }
    }
#pragma omp simd reduction(+ : error)
    for (int i = 0; i < GROUP; i++) {
        const float off = x[i] - group->code[i] * group->scale;
        error += importance[i] * off * off;
    }
    return error;
}

/* The scale of least error for the group's codes. */
static float best_scale(const float *x, const float *importance, const Group *group) {
    float products = 0, squares = 0;
#pragma omp simd reduction(+ : products, squares)
    for (int i = 0; i < GROUP; i++) {
        products += importance[i] * x[i] * group->code[i];
        squares += importance[i] * group->code[i] * group->code[i];
    }
    return squares > 0 ? products / squares : 0;
}

/* Tries scales that put the extreme value on an outer level, or slightly inside or outside of it. */
static void quantize4(const float *x, const float *importance, Group *best) {
    static const float extremes[] = {-127, -115, -104, -138, 113};
    const float extreme = extreme_of(x);
    float least = 0;
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        Group groups[2];
        const float first = round4(x, importance, extreme / extremes[i], &groups[0]);
        const float second = round4(x, importance, best_scale(x, importance, &groups[0]), &groups[1]);
        const float error = first < second ? first : second;
        if (i > 0 && !(error < least)) continue;
        least = error;
        *best = groups[second < first];
    }
}

/* Addresses of the first codes of a row's group, and of the group's scale. */
typedef struct {
    uint8_t *codes;
    uint16_t *scale;
} Place;

enum { STRIDE = GROUP_ROWS * 4 }; // bytes from four codes of a row to its next four codes

static Place place_of(Tensor matrix, int64_t row, int64_t group) {
    const int64_t tile = row / GROUP_ROWS * (tensor_width(matrix) / GROUP) + group;
    return (Place){(uint8_t *)matrix.data + dtype_bytes(matrix.dtype, tile * GROUP_ROWS * GROUP) +
                       row % GROUP_ROWS * 4,
                   (uint16_t *)matrix.scales + tile * GROUP_ROWS + row % GROUP_ROWS};
}

void groups_quantize(Tensor matrix, int64_t first, int64_t count, const float *values,
                     const float *importance) {
    static const float equal[GROUP] = {[0 ... GROUP - 1] = 1};
    const int64_t groups = tensor_width(matrix) / GROUP;
#pragma omp parallel for schedule(static)
    for (int64_t g = 0; g < count / GROUP; g++) {
        const int64_t at = first / GROUP + g;
        const Place p = place_of(matrix, at / groups, at % groups);
        const float *x = values + g * GROUP;
        Group group = {0};
        if (matrix.dtype == I8)
            quantize8(x, &group);
        else
            quantize4(x, importance ? importance + at % groups * GROUP : equal, &group);
        *p.scale = bfloat16_from_float(group.scale);
        for (int i = 0; i < (matrix.dtype == I8 ? GROUP : GROUP / 2); i++) {
            const int32_t high = matrix.dtype == I8 ? 0 : group.stored[i + GROUP / 2] * LEVELS;
            p.codes[i / 4 * STRIDE + i % 4] = (uint8_t)(group.stored[i] + high);
        }
    }
}

float groups_codes(Tensor matrix, int64_t row, int64_t group, int8_t codes[GROUP]) {
    const Place p = place_of(matrix, row, group);
    for (int i = 0; i < GROUP; i++) {
        const int byte = matrix.dtype == I8 ? i : i % (GROUP / 2), shift = i / (GROUP / 2) * 4;
        const uint8_t stored = p.codes[byte / 4 * STRIDE + byte % 4];
        codes[i] = matrix.dtype == I8 ? (int8_t)stored : groups_levels[stored >> shift & 15];
    }
    return bfloat16_to_float(*p.scale);
}

void groups_copy(Tensor matrix, int64_t first, int64_t count, uint8_t *codes, uint16_t *scales, bool set) {
    const int64_t groups = tensor_width(matrix) / GROUP;
    const int bytes = (int)dtype_bytes(matrix.dtype, GROUP);
    for (int64_t g = 0; g < count; g++) {
        const Place p = place_of(matrix, (first + g) / groups, (first + g) % groups);
        for (int i = 0; codes && i < bytes; i++) {
            uint8_t *tiled = &p.codes[i / 4 * STRIDE + i % 4], *plain = &codes[g * bytes + i];
            *(set ? tiled : plain) = *(set ? plain : tiled);
        }
        if (scales) *(set ? p.scale : &scales[g]) = set ? scales[g] : *p.scale;
    }
}
