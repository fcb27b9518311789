#include "kernels/squared_relu/squared_relu.h"

#include "kernels/check.h"

static Status check_forward(const SquaredReluForward *s) {
    TRY(check_present("squared_relu", "x", s->x));
    int64_t rows = tensor_rows(s->x), width = tensor_width(s->x);
    TRY(check_dense("squared_relu", "x", s->x, s->x.dtype, rows, width));
    return check_dense("squared_relu", "y", s->y, s->x.dtype, rows, width);
}

Status squared_relu_forward(Ctx *ctx, const SquaredReluForward *s) {
    TRY(check_forward(s));
    Call call = {.operation = OP_SQUARED_RELU,
                 .pass = PASS_FORWARD,
                 .dtype = s->x.dtype,
                 .contract = s,
                 .inputs = {s->x},
                 .work = {.flops = 2 * (double)tensor_count(s->x), // maximum, square
                          .bytes = (double)(tensor_bytes(s->x) + tensor_bytes(s->y))},
                 .outputs = {{"y", s->y}}};
    return op_run(ctx, &call);
}

Status squared_relu_backward(Ctx *ctx, const SquaredReluBackward *s) {
    const SquaredReluForward *f = s->forward;
    TRY(check_forward(f));
    int64_t rows = tensor_rows(f->x), width = tensor_width(f->x);
    TRY(check_dense("squared_relu", "dy", s->dy, f->x.dtype, rows, width));
    TRY(check_dense("squared_relu", "dx", s->dx, f->x.dtype, rows, width));
    Call call = {.operation = OP_SQUARED_RELU,
                 .pass = PASS_BACKWARD,
                 .dtype = f->x.dtype,
                 .contract = s,
                 .inputs = {s->dy, f->x},
                 .work = {.flops = 3 * (double)tensor_count(f->x), // maximum, two products
                          .bytes = (double)(tensor_bytes(f->x) + tensor_bytes(s->dy) + tensor_bytes(s->dx))},
                 .outputs = {{"dx", s->dx}}};
    return op_run(ctx, &call);
}
