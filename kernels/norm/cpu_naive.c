#include "kernels/dropout/mask.h"
#include "kernels/norm/norm.h"
#include "kernels/real.h"

#include <tgmath.h>

/* A view's rows as `real`, with each head as a row. Returns t itself if it is dense and `real`, else a tensor
 * for a copy. */
static Status take_rows(Ctx *ctx, const char *name, Tensor t, int64_t width, Tensor *rows) {
    Shape shape = shape2(tensor_count(t) / width, width);
    Dtype wide = dtype_wide(t.dtype);
    if (t.dtype != wide || !tensor_dense(t)) return take(ctx, ARENA_SCRATCH, name, wide, shape, rows);
    *rows = tensor_reshape(t, shape);
    return OK;
}

static void copy_in(Ctx *ctx, Tensor view, Tensor rows) {
    int64_t width = tensor_width(view);
    real *to = rows.data;
    if (view.data == to) return;
    PRIMITIVE (ctx, "copy", MEMORY, torch_call("aten::copy_"))
        EACH (ctx, i, tensor_rows(view), width)
            for (int64_t c = 0; c < width; c++) to[i * width + c] = load(stored_row(view, i)[c]);
}

static void copy_out(Ctx *ctx, Tensor rows, Tensor view) {
    int64_t width = tensor_width(view);
    const real *from = rows.data;
    if (view.data == from) return;
    PRIMITIVE (ctx, "copy", MEMORY, torch_call("aten::copy_"))
        EACH (ctx, i, tensor_rows(view), width)
            for (int64_t c = 0; c < width; c++) stored_row(view, i)[c] = store(from[i * width + c]);
}

static void residual_add(const Ctx *ctx, const stored *x, const stored *skip, int64_t count, stored *r) {
    EACH_ELEMENT (ctx, i, count) r[i] = store(load(x[i]) + load(skip[i]));
}

static void row_mean(const Ctx *ctx, const real *x, int64_t rows, int64_t width, real *mean) {
    EACH (ctx, i, rows, width) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++) sum += x[i * width + c];
        mean[i] = sum / (real)width;
    }
}

static void row_rstd(const Ctx *ctx, const real *r, const real *mean, real eps, int64_t rows, int64_t width,
                     real *rstd) {
    EACH (ctx, i, rows, width) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++) {
            real distance = r[i * width + c] - mean[i];
            sum += distance * distance;
        }
        rstd[i] = 1 / sqrt(sum / (real)width + eps);
    }
}

/* 1 / sqrt(mean(r^2) + eps) */
static void row_root(const Ctx *ctx, const real *r, real eps, int64_t rows, int64_t width, real *rstd) {
    EACH (ctx, i, rows, width) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < width; c++) sum += r[i * width + c] * r[i * width + c];
        rstd[i] = 1 / sqrt(sum / (real)width + eps);
    }
}

static void normalize(const Ctx *ctx, const real *r, const real *mean, const real *rstd, int64_t rows,
                      int64_t width, real *y) {
    EACH (ctx, i, rows, width)
        for (int64_t c = 0; c < width; c++) y[i * width + c] = (r[i * width + c] - mean[i]) * rstd[i];
}

static void divide_by_root(const Ctx *ctx, const real *r, const real *rstd, int64_t rows, int64_t width,
                           real *y) {
    EACH (ctx, i, rows, width)
        for (int64_t c = i * width; c < (i + 1) * width; c++) y[c] = r[c] * rstd[i];
}

static void scale_and_shift(const Ctx *ctx, const stored *weight, const stored *bias, int64_t rows,
                            int64_t width, real *y) {
    EACH (ctx, i, rows, width)
        for (int64_t c = 0; c < width; c++)
            y[i * width + c] = y[i * width + c] * load(weight[c]) + load(bias[c]);
}

static void multiply_rows(const Ctx *ctx, const real *x, const stored *weight, int64_t rows, int64_t width,
                          real *y) {
    EACH (ctx, i, rows, width)
        for (int64_t c = 0; c < width; c++) y[i * width + c] = x[i * width + c] * load(weight[c]);
}

static void layer_norm(Ctx *ctx, const NormForward *n, Tensor r, Tensor y) {
    const TorchName torch = norm_torch(ctx, n);
    int64_t rows = tensor_rows(r), width = tensor_width(r);
    PRIMITIVE (ctx, "mean", NORMALIZATION, torch, &n->mean) row_mean(ctx, r.data, rows, width, n->mean.data);
    PRIMITIVE (ctx, "variance", NORMALIZATION, torch, &n->rstd)
        row_rstd(ctx, r.data, n->mean.data, (real)n->eps, rows, width, n->rstd.data);
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch, &n->y)
        normalize(ctx, r.data, n->mean.data, n->rstd.data, rows, width, y.data);
    PRIMITIVE (ctx, "scale and shift", NORMALIZATION, torch)
        scale_and_shift(ctx, n->weight.data, n->bias.data, rows, width, y.data);
}

static void rms_norm(Ctx *ctx, const NormForward *n, Tensor r, Tensor y) {
    const TorchName torch = norm_torch(ctx, n);
    int64_t rows = tensor_rows(r), width = tensor_width(r);
    PRIMITIVE (ctx, "mean square", NORMALIZATION, torch, &n->rstd)
        row_root(ctx, r.data, (real)n->eps, rows, width, n->rstd.data);
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch, &n->y)
        divide_by_root(ctx, r.data, n->rstd.data, rows, width, y.data);
    PRIMITIVE (ctx, "scale", NORMALIZATION, torch)
        multiply_rows(ctx, y.data, n->weight.data, rows, width, y.data);
}

static void drop_samples(const Ctx *ctx, const NormForward *n, const stored *x, int64_t rows, int64_t width,
                         stored *y) {
    const DropoutMask mask = dropout_mask(&n->depth);
    EACH (ctx, i, rows, width) {
        bool kept = dropout_words(&mask, i / n->depth_rows, NORM_DEPTH_BLOCK).word[0] >= mask.least;
        for (int64_t c = 0; c < width; c++)
            y[i * width + c] = store(kept ? load(x[i * width + c]) * (real)mask.factor : 0);
    }
}

/* Applies dropout and stochastic depth to x (rows, C), the skip or its gradient, and writes y. */
static void drop(Ctx *ctx, const NormForward *n, Tensor x, Tensor y) {
    int64_t rows = tensor_rows(x), width = tensor_width(x);
    if (dropout_on(&n->dropout)) {
        PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
            TYPED(dropout_apply)(ctx, &n->dropout, x.data, rows, width, y.data);
        x = y;
    }
    if (dropout_on(&n->depth))
        PRIMITIVE (ctx, "stochastic depth", ELEMENTWISE, torch_call("aten::mul"))
            drop_samples(ctx, n, x.data, rows, width, y.data);
}

static Status norm_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const NormForward *n = contract;
    int64_t width = tensor_width(n->weight), count = tensor_count(n->x);
    bool skip = !tensor_empty(n->skip);
    Tensor r, y, added = n->skip; // (rows, C)
    TRY(take_rows(ctx, "norm.x", skip ? n->r : n->x, width, &r));
    TRY(take_rows(ctx, "norm.y", n->y, width, &y));
    if (norm_drops(n)) TRY(take(ctx, ARENA_SCRATCH, "norm.dropped", n->x.dtype, r.shape, &added));
    if (skip) drop(ctx, n, n->skip, added);
    if (skip)
        PRIMITIVE (ctx, "residual add", ELEMENTWISE, torch_call("aten::add"), &n->r)
            residual_add(ctx, n->x.data, added.data, count, n->r.data);
    copy_in(ctx, skip ? n->r : n->x, r);
    (n->kind == NORM_RMS ? rms_norm : layer_norm)(ctx, n, r, y);
    copy_out(ctx, y, n->y);
    return OK;
}
SLOT(NORM, FORWARD, CPU, NAIVE, STORED_DTYPE, norm_forward_cpu_naive);

static void multiply(const Ctx *ctx, const real *a, const real *b, int64_t count, real *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = a[i] * b[i];
}

static void add_columns(const Ctx *ctx, const real *x, int64_t rows, int64_t width, real *sum) {
#pragma omp parallel num_threads(cpu_threads(ctx)) if (rows * width >= EACH_LEAST)
    for (int64_t i = 0; i < rows; i++)
#pragma omp for simd schedule(static) nowait
        for (int64_t c = 0; c < width; c++) sum[c] += x[i * width + c];
}

/* The backward pass on rows of `real`; dr is copied back at the end. */
typedef struct {
    Tensor r, dy, dr;       // (rows, C)
    Tensor n, g, product;   // (rows, C)
    Tensor g_mean, gn_mean; // (rows); g_mean is for LAYER only
} Rows;

static Status take_backward(Ctx *ctx, const NormBackward *b, Rows *s) {
    const NormForward *f = b->forward;
    int64_t width = tensor_width(f->weight);
    TRY(take_rows(ctx, "norm.r", tensor_empty(f->skip) ? f->x : f->r, width, &s->r));
    TRY(take_rows(ctx, "norm.dy", b->dy, width, &s->dy));
    TRY(take_rows(ctx, "norm.dr", b->dr, width, &s->dr));
    Dtype dtype = s->r.dtype;
    TRY(take(ctx, ARENA_SCRATCH, "norm.normalized", dtype, s->r.shape, &s->n));
    TRY(take(ctx, ARENA_SCRATCH, "norm.g", dtype, s->r.shape, &s->g));
    TRY(take(ctx, ARENA_SCRATCH, "norm.product", dtype, s->r.shape, &s->product));
    TRY(take(ctx, ARENA_SCRATCH, "norm.gn_mean", dtype, shape1(tensor_rows(s->r)), &s->gn_mean));
    if (f->kind == NORM_RMS) return OK;
    return take(ctx, ARENA_SCRATCH, "norm.g_mean", dtype, shape1(tensor_rows(s->r)), &s->g_mean);
}

/* dr = (or +=) rstd * (g - mean(g) - n * mean(g * n)); for RMS without mean(g) */
static void input_gradient(const Ctx *ctx, const NormBackward *b, const Rows *s) {
    const real *rstd = b->forward->rstd.data, *n = s->n.data, *g = s->g.data;
    const real *g_mean = tensor_empty(s->g_mean) ? NULL : s->g_mean.data, *gn_mean = s->gn_mean.data;
    real *dr = s->dr.data;
    int64_t rows = tensor_rows(s->r), width = tensor_width(s->r);
    EACH (ctx, i, rows, width)
        for (int64_t c = i * width; c < (i + 1) * width; c++) {
            real gradient = rstd[i] * (g[c] - (g_mean ? g_mean[i] : 0) - n[c] * gn_mean[i]);
            dr[c] = b->accumulate ? dr[c] + gradient : gradient;
        }
}

static Status norm_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const NormBackward *b = contract;
    const NormForward *f = b->forward;
    const int64_t count = tensor_count(f->x), width = tensor_width(f->weight), rows = count / width;
    const bool layer = f->kind == NORM_LAYER;
    const TorchName torch = norm_torch(ctx, f);
    Rows s = {0};
    TRY(take_backward(ctx, b, &s));
    copy_in(ctx, tensor_empty(f->skip) ? f->x : f->r, s.r);
    copy_in(ctx, b->dy, s.dy);
    if (b->accumulate) copy_in(ctx, b->dr, s.dr);
    PRIMITIVE (ctx, "normalize", NORMALIZATION, torch) {
        if (layer)
            normalize(ctx, s.r.data, f->mean.data, f->rstd.data, rows, width, s.n.data);
        else
            divide_by_root(ctx, s.r.data, f->rstd.data, rows, width, s.n.data);
    }
    PRIMITIVE (ctx, "multiply", NORMALIZATION, torch)
        multiply(ctx, s.dy.data, s.n.data, count, s.product.data);
    PRIMITIVE (ctx, "weight gradient", NORMALIZATION, torch)
        add_columns(ctx, s.product.data, rows, width, b->dweight.data);
    if (layer)
        PRIMITIVE (ctx, "bias gradient", NORMALIZATION, torch)
            add_columns(ctx, s.dy.data, rows, width, b->dbias.data);
    PRIMITIVE (ctx, "scale", NORMALIZATION, torch)
        multiply_rows(ctx, s.dy.data, f->weight.data, rows, width, s.g.data);
    if (layer)
        PRIMITIVE (ctx, "mean", NORMALIZATION, torch) row_mean(ctx, s.g.data, rows, width, s.g_mean.data);
    PRIMITIVE (ctx, "multiply", NORMALIZATION, torch)
        multiply(ctx, s.g.data, s.n.data, count, s.product.data);
    PRIMITIVE (ctx, "mean", NORMALIZATION, torch) row_mean(ctx, s.product.data, rows, width, s.gn_mean.data);
    if (!tensor_empty(b->dr_sums))
        PRIMITIVE (ctx, "column sums", NORMALIZATION, torch_call("aten::sum"))
            add_columns(ctx, s.dr.data, rows, width, b->dr_sums.data);
    PRIMITIVE (ctx, "input gradient", NORMALIZATION, torch) input_gradient(ctx, b, &s);
    copy_out(ctx, s.dr, b->dr);
    if (norm_drops(f)) drop(ctx, f, b->dr, b->dskip);
    return OK;
}
SLOT(NORM, BACKWARD, CPU, NAIVE, STORED_DTYPE, norm_backward_cpu_naive);
