#include "kernels/gemm/gemm.h"
#include "kernels/patch/patch.h"
#include "kernels/real.h"

/* (rows, channels) of bytes to numbers */
static void normalize(const uint8_t *pixels, int64_t count, const PatchForward *p, int64_t channels,
                      stored *values) {
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i % channels;
        values[i] = store(((real)pixels[i] / 255 - (real)p->mean[c]) / (real)p->deviation[c]);
    }
}

/* Row by row of x, the inputs of a patch: c, then i, then j. A class token's row is zeros. */
static void unfold(const stored *values, const PatchSizes *s, stored *x) {
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t k = 0; k < s->first * s->inputs; k++) *x++ = store(0);
        for (int64_t n = 0; n < s->down * s->across; n++)
            for (int64_t k = 0; k < s->inputs; k++) {
                int64_t c = k / (s->size * s->size), i = k / s->size % s->size, j = k % s->size;
                int64_t row = n / s->across * s->size + i, column = n % s->across * s->size + j;
                *x++ = values[((b * s->height + row) * s->width + column) * s->channels + c];
            }
    }
}

static void add(const stored *x, int64_t count, stored *y) {
    for (int64_t i = 0; i < count; i++) y[i] = store(load(y[i]) + load(x[i]));
}

static void add_bias(const stored *bias, const PatchSizes *s, stored *y) {
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = s->first; t < s->rows; t++)
            add(bias, s->outputs, y + (b * s->rows + t) * s->outputs);
}

static void add_token(const stored *token, const PatchSizes *s, stored *y) {
    for (int64_t b = 0; b < s->batch; b++) add(token, s->outputs, y + b * s->rows * s->outputs);
}

static void add_positions(const stored *position, const PatchSizes *s, stored *y) {
    for (int64_t b = 0; b < s->batch; b++) add(position, s->rows * s->outputs, y + b * s->rows * s->outputs);
}

static Status patch_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const PatchForward *p = contract;
    const PatchSizes s = patch_sizes(p);
    Tensor values; // (B, H, W, channels)
    TRY(take(ctx, ARENA_SCRATCH, "patch.values", STORED_DTYPE, p->pixels.shape, &values));
    PRIMITIVE (ctx, "normalize") normalize(p->pixels.data, tensor_count(values), p, s.channels, values.data);
    PRIMITIVE (ctx, "unfold") unfold(values.data, &s, p->x.data);
    Gemm product = gemm_forward(p->x, p->weight, p->y, 0);
    PRIMITIVE (ctx, "product") TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, "bias add") add_bias(p->bias.data, &s, p->y.data);
    if (s.first)
        PRIMITIVE (ctx, "class token") add_token(p->token.data, &s, p->y.data);
    PRIMITIVE (ctx, "position add") add_positions(p->position.data, &s, p->y.data);
    return OK;
}
SLOT(PATCH, FORWARD, CPU, NAIVE, STORED_DTYPE, patch_forward_cpu_naive);

static void add_gradient(const stored *dy, int64_t count, real *sum) {
    for (int64_t i = 0; i < count; i++) sum[i] += load(dy[i]);
}

static void sum_bias(const stored *dy, const PatchSizes *s, real *dbias) {
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = s->first; t < s->rows; t++)
            add_gradient(dy + (b * s->rows + t) * s->outputs, s->outputs, dbias);
}

static void sum_token(const stored *dy, const PatchSizes *s, real *dtoken) {
    for (int64_t b = 0; b < s->batch; b++) add_gradient(dy + b * s->rows * s->outputs, s->outputs, dtoken);
}

static void sum_positions(const stored *dy, const PatchSizes *s, real *dposition) {
    for (int64_t b = 0; b < s->batch; b++)
        add_gradient(dy + b * s->rows * s->outputs, s->rows * s->outputs, dposition);
}

static Status patch_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const PatchBackward *p = contract;
    const PatchSizes s = patch_sizes(p->forward);
    Gemm product = gemm_dweight(p->dy, p->forward->x, p->dweight, 1);
    PRIMITIVE (ctx, "weight gradient") TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, "bias gradient") sum_bias(p->dy.data, &s, p->dbias.data);
    if (s.first)
        PRIMITIVE (ctx, "token sum") sum_token(p->dy.data, &s, p->dtoken.data);
    PRIMITIVE (ctx, "position sum") sum_positions(p->dy.data, &s, p->dposition.data);
    return OK;
}
SLOT(PATCH, BACKWARD, CPU, NAIVE, STORED_DTYPE, patch_backward_cpu_naive);
