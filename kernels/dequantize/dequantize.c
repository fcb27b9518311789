#include "kernels/dequantize/dequantize.h"

#include "kernels/check.h"

Status dequantize_forward(Ctx *ctx, const Dequantize *d) {
    TRY(check_present("dequantize", "x", d->x));
    const int64_t rows = tensor_rows(d->x), width = tensor_width(d->x);
    TRY(check_that("dequantize", !ctx->training, "it is for inference only"));
    TRY(check_that("dequantize", dtype_grouped(d->x.dtype) && width % GROUP == 0 && rows % GROUP_ROWS == 0,
                   "x consists of whole groups and tiles"));
    TRY(check_dense("dequantize", "x", d->x, d->x.dtype, rows, width));
    TRY(check_dense("dequantize", "y", d->y, d->y.dtype, rows, width));
    const Call call = {.operation = OP_DEQUANTIZE,
                       .pass = PASS_FORWARD,
                       .dtype = d->y.dtype,
                       .contract = d,
                       .inputs = {d->x},
                       .work = {.flops = (double)tensor_count(d->y),
                                .bytes = (double)(tensor_bytes(d->x) + tensor_bytes(d->y))},
                       .outputs = {{"y", d->y}}};
    return op_run(ctx, &call);
}

Status dequantize_values(Ctx *ctx, Tensor x, Dtype dtype, Tensor *values) {
    Dequantize d = {.x = x};
    *values = x;
    if (!dtype_grouped(x.dtype)) return OK;
    TRY(take(ctx, ARENA_SCRATCH, "dequantized", dtype, x.shape, &d.y));
    *values = d.y;
    return dequantize_forward(ctx, &d);
}
