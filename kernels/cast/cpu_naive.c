#include "base/float8.h"
#include "kernels/cast/cast.h"
#include "kernels/real.h"

/* Compares magnitudes as integers, which orders positive floats and makes a NaN the largest. */
static float absolute_maximum(const Ctx *ctx, const stored *x, int64_t count) {
    uint32_t most = 0;
#pragma omp parallel for num_threads(cpu_threads(ctx)) reduction(max : most) if (count >= EACH_LEAST)
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of_float(fabsf((float)load(x[i])));
        if (bits > most) most = bits;
    }
    return float_of_bits(most);
}

static void cast_elements(const Ctx *ctx, const stored *x, float scale, int64_t count, uint8_t *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = e4m3_saturated((float)load(x[i]) * scale);
}

static void round_elements(const Ctx *ctx, const stored *x, float scale, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count)
        y[i] = store((real)(e4m3_to_float(e4m3_saturated((float)load(x[i]) * scale)) / scale));
}

static void transpose_cast(const Ctx *ctx, const stored *x, float scale, int64_t rows, int64_t width,
                           uint8_t *t) {
    EACH (ctx, c, width, rows)
        for (int64_t i = 0; i < rows; i++)
            t[c * rows + i] = e4m3_saturated((float)load(x[i * width + c]) * scale);
}

static void add_columns(const Ctx *ctx, const stored *x, int64_t rows, int64_t width, real *sums) {
    EACH (ctx, c, width, rows)
        for (int64_t i = 0; i < rows; i++) sums[c] += load(x[i * width + c]);
}

static float scale_of(const Cast *c, float maximum) {
    const float scale = tensor_empty(c->given) ? e4m3_scale(maximum) : *(const float *)c->given.data;
    real *seen = c->seen.data;
    if (seen && !isnan(seen[0]) && !(maximum <= seen[0])) seen[0] = maximum;
    if (seen && maximum * scale > 448) seen[1] = 1;
    return scale;
}

static Status cast_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const Cast *c = contract;
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x), count = rows * width;
    float scale = 1;
    PRIMITIVE (ctx, "absolute maximum", ELEMENTWISE) {
        scale = scale_of(c, absolute_maximum(ctx, c->x.data, count));
        *(float *)c->scale.data = 1 / scale;
    }
    if (!tensor_empty(c->y))
        PRIMITIVE (ctx, "cast", ELEMENTWISE) cast_elements(ctx, c->x.data, scale, count, c->y.data);
    if (!tensor_empty(c->t))
        PRIMITIVE (ctx, "transpose", ELEMENTWISE)
            transpose_cast(ctx, c->x.data, scale, rows, width, c->t.data);
    if (!tensor_empty(c->rounded))
        PRIMITIVE (ctx, "round", ELEMENTWISE) round_elements(ctx, c->x.data, scale, count, c->rounded.data);
    if (!tensor_empty(c->sums))
        PRIMITIVE (ctx, "column sums", ELEMENTWISE) add_columns(ctx, c->x.data, rows, width, c->sums.data);
    return OK;
}
SLOT(CAST, FORWARD, CPU, NAIVE, STORED_DTYPE, cast_forward_cpu_naive);
