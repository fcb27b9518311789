#include "kernels/dropout/mask.h"
#include "kernels/norm/norm.h"
#include "kernels/real.h"

#include <tgmath.h>

static void residual_add(const real *x, const real *skip, int64_t count, real *r) {
    for (int64_t i = 0; i < count; i++) r[i] = x[i] + skip[i];
}

static void row_mean(const real *x, int64_t rows, int64_t width, real *mean) {
    for (int64_t i = 0; i < rows; i++) {
        real sum = 0;
        for (int64_t c = 0; c < width; c++) sum += x[i * width + c];
        mean[i] = sum / (real)width;
    }
}

static void row_rstd(const real *r, const real *mean, real eps, int64_t rows, int64_t width, real *rstd) {
    for (int64_t i = 0; i < rows; i++) {
        real sum = 0;
        for (int64_t c = 0; c < width; c++) {
            real distance = r[i * width + c] - mean[i];
            sum += distance * distance;
        }
        rstd[i] = 1 / sqrt(sum / (real)width + eps);
    }
}

static void normalize(const real *r, const real *mean, const real *rstd, int64_t rows, int64_t width,
                      real *y) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) y[i * width + c] = (r[i * width + c] - mean[i]) * rstd[i];
}

static void scale_and_shift(const real *weight, const real *bias, int64_t rows, int64_t width, real *y) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) y[i * width + c] = y[i * width + c] * weight[c] + bias[c];
}

static Status norm_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const NormForward *n = contract;
    int64_t rows = tensor_rows(n->x), width = tensor_width(n->x);
    bool skip = !tensor_empty(n->skip);
    Tensor r = skip ? n->r : n->x, added = n->skip;
    if (dropout_on(&n->dropout)) {
        TRY(take(ctx, ARENA_SCRATCH, "norm.dropped", r.dtype, shape2(rows, width), &added));
        PRIMITIVE (ctx, "dropout") SPEC(dropout_apply)(&n->dropout, n->skip.data, rows, width, added.data);
    }
    if (skip)
        PRIMITIVE (ctx, "residual add") residual_add(n->x.data, added.data, rows * width, r.data);
    PRIMITIVE (ctx, "mean") row_mean(r.data, rows, width, n->mean.data);
    PRIMITIVE (ctx, "variance") row_rstd(r.data, n->mean.data, (real)n->eps, rows, width, n->rstd.data);
    PRIMITIVE (ctx, "normalize") normalize(r.data, n->mean.data, n->rstd.data, rows, width, n->y.data);
    PRIMITIVE (ctx, "scale and shift") scale_and_shift(n->weight.data, n->bias.data, rows, width, n->y.data);
    return OK;
}
SLOT(NORM, FORWARD, CPU, NAIVE, REAL_DTYPE, norm_forward_cpu_naive);

static void multiply_rows(const real *x, const real *weight, int64_t rows, int64_t width, real *y) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) y[i * width + c] = x[i * width + c] * weight[c];
}

static void multiply(const real *a, const real *b, int64_t count, real *y) {
    for (int64_t i = 0; i < count; i++) y[i] = a[i] * b[i];
}

static void add_columns(const real *x, int64_t rows, int64_t width, real *sum) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < width; c++) sum[c] += x[i * width + c];
}

/* dr = (or +=) rstd * (g - mean(g) - n * mean(g * n)) */
static void input_gradient(const NormBackward *b, const real *n, const real *g, const real *g_mean,
                           const real *gn_mean, real *dr) {
    const real *rstd = b->forward->rstd.data;
    int64_t rows = tensor_rows(b->dr), width = tensor_width(b->dr);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = i * width; c < (i + 1) * width; c++) {
            real gradient = rstd[i] * (g[c] - g_mean[i] - n[c] * gn_mean[i]);
            dr[c] = b->accumulate ? dr[c] + gradient : gradient;
        }
}

static Status norm_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const NormBackward *b = contract;
    const NormForward *f = b->forward;
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x), count = rows * width;
    Tensor r = tensor_empty(f->skip) ? f->x : f->r;
    Tensor n, g, product;   // (rows, C)
    Tensor g_mean, gn_mean; // (rows)
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", r.dtype, shape2(rows, width), &n));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g", r.dtype, shape2(rows, width), &g));
    TRY(take(ctx, ARENA_SCRATCH, "norm.product", r.dtype, shape2(rows, width), &product));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g_mean", r.dtype, shape1(rows), &g_mean));
    TRY(take(ctx, ARENA_SCRATCH, "norm.gn_mean", r.dtype, shape1(rows), &gn_mean));
    PRIMITIVE (ctx, "normalize") normalize(r.data, f->mean.data, f->rstd.data, rows, width, n.data);
    PRIMITIVE (ctx, "multiply") multiply(b->dy.data, n.data, count, product.data);
    PRIMITIVE (ctx, "weight gradient") add_columns(product.data, rows, width, b->dweight.data);
    PRIMITIVE (ctx, "bias gradient") add_columns(b->dy.data, rows, width, b->dbias.data);
    PRIMITIVE (ctx, "scale") multiply_rows(b->dy.data, f->weight.data, rows, width, g.data);
    PRIMITIVE (ctx, "mean") row_mean(g.data, rows, width, g_mean.data);
    PRIMITIVE (ctx, "multiply") multiply(g.data, n.data, count, product.data);
    PRIMITIVE (ctx, "mean") row_mean(product.data, rows, width, gn_mean.data);
    if (!tensor_empty(b->dr_sums))
        PRIMITIVE (ctx, "column sums") add_columns(b->dr.data, rows, width, b->dr_sums.data);
    PRIMITIVE (ctx, "input gradient")
        input_gradient(b, n.data, g.data, g_mean.data, gn_mean.data, b->dr.data);
    if (dropout_on(&f->dropout))
        PRIMITIVE (ctx, "dropout gradient")
            SPEC(dropout_apply)(&f->dropout, b->dr.data, rows, width, b->dskip.data);
    return OK;
}
SLOT(NORM, BACKWARD, CPU, NAIVE, REAL_DTYPE, norm_backward_cpu_naive);
