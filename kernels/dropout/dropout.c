#include "kernels/dropout/dropout.h"

#include "kernels/check.h"

Status dropout_check(const char *operation, const Dropout *d) {
    TRY(check_that(operation, d->rate >= 0 && d->rate < 1, "the dropout rate is at least 0 and below 1"));
    return dropout_on(d) ? check_dense(operation, "draw", d->draw, I32, 1, 1) : OK;
}

static Status check_forward(const DropoutForward *d) {
    TRY(check_present("dropout", "x", d->x));
    int64_t rows = tensor_rows(d->x), width = tensor_width(d->x);
    TRY(check_dense("dropout", "x", d->x, d->x.dtype, rows, width));
    TRY(check_dense("dropout", "y", d->y, d->x.dtype, rows, width));
    TRY(check_that("dropout", dropout_on(&d->dropout), "something is dropped"));
    return dropout_check("dropout", &d->dropout);
}

Status dropout_forward(Ctx *ctx, const DropoutForward *d) {
    TRY(check_forward(d));
    if (tensor_count(d->x) == 0) return OK;
    Call call = {.operation = OP_DROPOUT,
                 .pass = PASS_FORWARD,
                 .dtype = d->x.dtype,
                 .contract = d,
                 .inputs = {d->x},
                 .work = {.flops = (double)tensor_count(d->x), .bytes = 2 * (double)tensor_bytes(d->x)},
                 .outputs = {{"y", d->y}}};
    return op_run(ctx, &call);
}

Status dropout_backward(Ctx *ctx, const DropoutBackward *d) {
    const DropoutForward *f = d->forward;
    TRY(check_forward(f));
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x);
    TRY(check_dense("dropout", "dy", d->dy, f->x.dtype, rows, width));
    TRY(check_dense("dropout", "dx", d->dx, f->x.dtype, rows, width));
    if (tensor_count(f->x) == 0) return OK;
    Call call = {.operation = OP_DROPOUT,
                 .pass = PASS_BACKWARD,
                 .dtype = f->x.dtype,
                 .contract = d,
                 .inputs = {d->dy, f->x},
                 .work = {.flops = (double)tensor_count(f->x), .bytes = 2 * (double)tensor_bytes(f->x)},
                 .outputs = {{"dx", d->dx}}};
    return op_run(ctx, &call);
}
