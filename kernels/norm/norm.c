#include "kernels/norm/norm.h"

#include "kernels/check.h"

static Status take_outputs(Ctx *ctx, NormForward *n, ArenaKind saved) {
    TRY(check_present("norm", "x", n->x));
    Dtype type = n->x.dtype, wide = dtype_wide(type);
    Shape rows = shape1(tensor_rows(n->x));
    if (!tensor_empty(n->skip)) TRY(take_missing(ctx, saved, "norm.residual", type, n->x.shape, &n->r));
    TRY(take_missing(ctx, saved, ctx->call, type, n->x.shape, &n->y));
    TRY(take_missing(ctx, saved, "norm.mean", wide, rows, &n->mean));
    return take_missing(ctx, saved, "norm.rstd", wide, rows, &n->rstd);
}

static Status check_forward(const NormForward *n) {
    TRY(check_present("norm", "x", n->x));
    Dtype type = n->x.dtype, wide = dtype_wide(type);
    int64_t rows = tensor_rows(n->x), width = tensor_width(n->x);
    TRY(check_dense("norm", "x", n->x, type, rows, width));
    TRY(check_dense("norm", "weight", n->weight, type, 1, width));
    TRY(check_dense("norm", "bias", n->bias, type, 1, width));
    TRY(check_dense("norm", "y", n->y, type, rows, width));
    TRY(check_dense("norm", "mean", n->mean, wide, 1, rows));
    TRY(check_dense("norm", "rstd", n->rstd, wide, 1, rows));
    TRY(check_that("norm", tensor_empty(n->skip) == tensor_empty(n->r), "r is there exactly where skip is"));
    TRY(check_that("norm", n->eps >= 0, "eps is not negative"));
    TRY(dropout_check("norm", &n->dropout));
    TRY(check_that("norm", !tensor_empty(n->skip) || !dropout_on(&n->dropout),
                   "only a skip is dropped from"));
    if (tensor_empty(n->skip)) return OK;
    TRY(check_dense("norm", "skip", n->skip, type, rows, width));
    return check_dense("norm", "r", n->r, type, rows, width);
}

Status norm_forward(Ctx *ctx, NormForward *n, ArenaKind saved) {
    TRY(take_outputs(ctx, n, saved));
    TRY(check_forward(n));
    if (tensor_rows(n->x) == 0) return OK;
    double size = (double)dtype_size(n->x.dtype), wide = (double)dtype_size(n->mean.dtype);
    double elements = (double)tensor_count(n->x), rows = (double)tensor_rows(n->x);
    bool skip = !tensor_empty(n->skip), drop = dropout_on(&n->dropout);
    /* Per element: dropout 1, residual 1, mean 1, variance 3, normalize 2, scale and shift 2. */
    Call call = {.operation = OP_NORM,
                 .pass = PASS_FORWARD,
                 .dtype = n->x.dtype,
                 .contract = n,
                 .work = {.flops = elements * ((skip ? 9 : 8) + drop),
                          .bytes = size * (elements * (skip ? 4 : 2) + 2 * (double)tensor_width(n->x)) +
                                   2 * wide * rows},
                 .outputs = {{"y", n->y}, {"mean", n->mean}, {"rstd", n->rstd}, {"r", n->r}}};
    return op_run(ctx, &call);
}

Status norm_backward(Ctx *ctx, const NormBackward *n) {
    const NormForward *f = n->forward;
    TRY(check_forward(f));
    Dtype type = f->x.dtype, sums_type = dtype_wide(type);
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x);
    TRY(check_dense("norm", "dy", n->dy, type, rows, width));
    TRY(check_dense("norm", "dr", n->dr, type, rows, width));
    bool drop = dropout_on(&f->dropout);
    TRY(check_that("norm", drop == !tensor_empty(n->dskip),
                   "dskip is there exactly where something is dropped"));
    if (drop) TRY(check_dense("norm", "dskip", n->dskip, type, rows, width));
    TRY(check_dense("norm", "dweight", n->dweight, sums_type, 1, width));
    TRY(check_dense("norm", "dbias", n->dbias, sums_type, 1, width));
    bool sums = !tensor_empty(n->dr_sums);
    if (sums) {
        TRY(check_that("norm", n->accumulate && !drop, "dr_sums go with accumulate, and not with dropout"));
        TRY(check_dense("norm", "dr_sums", n->dr_sums, sums_type, 1, width));
    }
    if (rows == 0) return OK;
    double size = (double)dtype_size(type), wide = (double)dtype_size(sums_type);
    double elements = (double)tensor_count(f->x);
    /* Per element: n 2, g 1, two means 3, dr 4, dweight 2, dbias 1, accumulate 1, dr_sums 1. */
    Call call = {
        .operation = OP_NORM,
        .pass = PASS_BACKWARD,
        .dtype = f->x.dtype,
        .contract = n,
        .work = {.flops = elements * (13 + n->accumulate + sums + drop),
                 .bytes = size * (elements * ((n->accumulate ? 4 : 3) + drop) + (double)width) +
                          wide * (2 * (double)rows + (sums ? 6 : 4) * (double)width)},
        .outputs = {{"dr", n->dr}, {"dweight", n->dweight}, {"dbias", n->dbias}, {"dr_sums", n->dr_sums}}};
    if (drop) call.outputs[3] = (Output){"dskip", n->dskip};
    return op_run(ctx, &call);
}
