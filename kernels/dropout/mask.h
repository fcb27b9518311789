/* mask: dropout masks in CPU forms. */
#pragma once

#include "base/bfloat16.h"
#include "base/random.h"
#include "kernels/dropout/dropout.h"

typedef struct {
    uint32_t key0, key1, instance, draw, least; // least: the smallest word that keeps its element
    double factor;                              // 1 / (1 - rate)
} DropoutMask;

static inline DropoutMask dropout_mask(const Dropout *d) {
    uint32_t draw = (uint32_t) * (const int32_t *)d->draw.data;
    return (DropoutMask){
        (uint32_t)d->seed, (uint32_t)(d->seed >> 32), d->instance, draw, (uint32_t)(d->rate * 0x1p32),
        1 / (1 - d->rate)};
}

/* Random words of columns 4 * block .. 4 * block + 3. */
static inline RandomBlock dropout_words(const DropoutMask *m, int64_t row, int64_t block) {
    RandomBlock counter = {{(uint32_t)block, (uint32_t)row, m->instance, m->draw}};
    return random_philox(counter, m->key0, m->key1);
}

/* y = x * keep / (1 - rate) over one row; y may be x. */
void dropout_row_float(const DropoutMask *mask, int64_t row, const float *x, int64_t width, float *y);
void dropout_row_bf16(const DropoutMask *mask, int64_t row, const bf16 *x, int64_t width, bf16 *y);

/* The primitive of all naive forms: the same for (rows, width). */
void dropout_apply_float(const Ctx *ctx, const Dropout *dropout, const float *x, int64_t rows, int64_t width,
                         float *y);
void dropout_apply_bf16(const Ctx *ctx, const Dropout *dropout, const bf16 *x, int64_t rows, int64_t width,
                        bf16 *y);
void dropout_apply_double(const Ctx *ctx, const Dropout *dropout, const double *x, int64_t rows,
                          int64_t width, double *y);
