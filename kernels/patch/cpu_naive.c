#include "kernels/gemm/gemm.h"
#include "kernels/patch/patch.h"
#include "kernels/real.h"

/* Converts (rows, channels) of bytes to numbers. */
static void normalize(const Ctx *ctx, const uint8_t *pixels, int64_t count, const PatchForward *p,
                      int64_t channels, stored *values) {
    EACH (ctx, i, count, 1) {
        int64_t c = i % channels;
        values[i] = store(((real)pixels[i] / 255 - (real)p->mean[c]) / (real)p->deviation[c]);
    }
}

/* Row by row of x, the inputs of a patch in the order c, i, j. The class token's row is zeros. */
static void unfold(const Ctx *ctx, const stored *values, const PatchSizes *s, stored *x) {
    EACH (ctx, t, s->batch * s->rows, s->inputs) {
        int64_t b = t / s->rows, n = t % s->rows - s->first;
        for (int64_t k = 0; k < s->inputs; k++) {
            int64_t c = k / (s->size * s->size), i = k / s->size % s->size, j = k % s->size;
            int64_t row = n / s->across * s->size + i, column = n % s->across * s->size + j;
            x[t * s->inputs + k] =
                n < 0 ? store(0) : values[((b * s->height + row) * s->width + column) * s->channels + c];
        }
    }
}

static void add(const stored *x, int64_t count, stored *y) {
    for (int64_t i = 0; i < count; i++) y[i] = store(load(y[i]) + load(x[i]));
}

static void add_bias(const Ctx *ctx, const stored *bias, const PatchSizes *s, stored *y) {
    EACH (ctx, t, s->batch * s->rows, s->outputs)
        if (t % s->rows >= s->first) add(bias, s->outputs, y + t * s->outputs);
}

static void add_token(const stored *token, const PatchSizes *s, stored *y) {
    for (int64_t b = 0; b < s->batch; b++) add(token, s->outputs, y + b * s->rows * s->outputs);
}

static void add_positions(const Ctx *ctx, const stored *position, const PatchSizes *s, stored *y) {
    EACH (ctx, b, s->batch, s->rows * s->outputs)
        add(position, s->rows * s->outputs, y + b * s->rows * s->outputs);
}

static Status patch_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const PatchForward *p = contract;
    const PatchSizes s = patch_sizes(p);
    Tensor values; // (B, H, W, channels)
    TRY(take(ctx, ARENA_SCRATCH, "patch.values", STORED_DTYPE, p->pixels.shape, &values));
    PRIMITIVE (ctx, "normalize", ELEMENTWISE, torch_call("aten::div"))
        normalize(ctx, p->pixels.data, tensor_count(values), p, s.channels, values.data);
    PRIMITIVE (ctx, "unfold", MEMORY, torch_call("aten::im2col"), &p->x)
        unfold(ctx, values.data, &s, p->x.data);
    Gemm product = gemm_forward(p->x, p->weight, p->y, 0);
    PRIMITIVE (ctx, "product", MATRIX, torch_call("aten::addmm")) TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, "bias add", ELEMENTWISE, torch_part("aten::addmm"))
        add_bias(ctx, p->bias.data, &s, p->y.data);
    if (s.first)
        PRIMITIVE (ctx, "class token", MEMORY, torch_call("aten::cat"))
            add_token(p->token.data, &s, p->y.data);
    PRIMITIVE (ctx, "position add", EMBEDDING, torch_call("aten::add"))
        add_positions(ctx, p->position.data, &s, p->y.data);
    return OK;
}
SLOT(PATCH, FORWARD, CPU, NAIVE, STORED_DTYPE, patch_forward_cpu_naive);

static void add_gradient(const Ctx *ctx, const stored *dy, int64_t count, real *sum) {
    EACH_ELEMENT (ctx, i, count) sum[i] += load(dy[i]);
}

static void sum_bias(const Ctx *ctx, const stored *dy, const PatchSizes *s, real *dbias) {
#pragma omp parallel num_threads(cpu_threads(ctx)) if (s->batch * s->rows * s->outputs >= EACH_LEAST)
    for (int64_t t = 0; t < s->batch * s->rows; t++) {
        if (t % s->rows < s->first) continue; // threads agree on this branch
#pragma omp for simd schedule(static) nowait
        for (int64_t c = 0; c < s->outputs; c++) dbias[c] += load(dy[t * s->outputs + c]);
    }
}

static void sum_token(const Ctx *ctx, const stored *dy, const PatchSizes *s, real *dtoken) {
    for (int64_t b = 0; b < s->batch; b++)
        add_gradient(ctx, dy + b * s->rows * s->outputs, s->outputs, dtoken);
}

static void sum_positions(const Ctx *ctx, const stored *dy, const PatchSizes *s, real *dposition) {
    for (int64_t b = 0; b < s->batch; b++)
        add_gradient(ctx, dy + b * s->rows * s->outputs, s->rows * s->outputs, dposition);
}

static Status patch_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const PatchBackward *p = contract;
    const PatchSizes s = patch_sizes(p->forward);
    Gemm product = gemm_dweight(p->dy, p->forward->x, p->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, "bias gradient", ELEMENTWISE, torch_call("aten::sum"))
        sum_bias(ctx, p->dy.data, &s, p->dbias.data);
    if (s.first)
        PRIMITIVE (ctx, "token sum", ELEMENTWISE, torch_call("aten::sum"))
            sum_token(ctx, p->dy.data, &s, p->dtoken.data);
    PRIMITIVE (ctx, "position sum", ELEMENTWISE, torch_call("aten::sum"))
        sum_positions(ctx, p->dy.data, &s, p->dposition.data);
    return OK;
}
SLOT(PATCH, BACKWARD, CPU, NAIVE, STORED_DTYPE, patch_backward_cpu_naive);
