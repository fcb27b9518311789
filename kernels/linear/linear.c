#include "kernels/linear/linear.h"

#include "kernels/check.h"

const char *activation_name(Activation activation) {
    static const char *const names[ACTIVATION_COUNT] = {"identity", "GELU", "GELU", "ReLU", "tanh"};
    return names[activation];
}

const char *activation_gradient_name(Activation activation) {
    static const char *const names[ACTIVATION_COUNT] = {"identity", "GELU gradient", "GELU gradient",
                                                        "ReLU gradient", "tanh gradient"};
    return names[activation];
}

static Tensor elements_of(Tensor t, int part, int parts) {
    int64_t count = tensor_count(t) / parts;
    if (tensor_empty(t)) return t;
    t.data = (void *)((uintptr_t)t.data + (size_t)(part * count) * dtype_size(t.dtype));
    t.shape.d[0] /= parts; // rows of a matrix, elements of a vector
    if (t.shape.rank == 1) t.stride = count;
    return t;
}

static Tensor columns_of(Tensor t, int part, int parts) {
    int64_t width = tensor_width(t) / parts;
    return tensor_columns(t, part * width, width);
}

LinearForward linear_part(const LinearForward *l, int part) {
    LinearForward one = *l;
    one.parts = 1;
    one.weight = elements_of(l->weight, part, l->parts);
    one.bias = elements_of(l->bias, part, l->parts);
    one.y = columns_of(l->y, part, l->parts);
    return one;
}

LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward) {
    LinearBackward one = *l;
    int parts = l->forward->parts;
    *forward = linear_part(l->forward, part);
    one.forward = forward;
    one.dy = columns_of(l->dy, part, parts);
    one.dweight = elements_of(l->dweight, part, parts);
    one.dbias = elements_of(l->dbias, part, parts);
    one.accumulate = l->accumulate || part > 0;
    return one;
}

static Status check_forward(const Ctx *ctx, const LinearForward *l) {
    TRY(check_present("linear", "x", l->x));
    TRY(check_present("linear", "weight", l->weight));
    int64_t rows = tensor_rows(l->x), in = tensor_width(l->weight), out = tensor_rows(l->weight);
    bool bias = !tensor_empty(l->bias), active = l->activation != ACTIVATION_NONE;
    TRY(check_dense("linear", "x", l->x, ctx->dtype, rows, in));
    TRY(check_dense("linear", "weight", l->weight, ctx->dtype, out, in));
    if (bias) TRY(check_dense("linear", "bias", l->bias, ctx->dtype, 1, out));
    TRY(check_that("linear", l->activation >= 0 && l->activation < ACTIVATION_COUNT,
                   "the activation is a known one"));
    TRY(check_that("linear", l->parts >= 0 && (l->parts < 2 || (out % l->parts == 0 && !active)),
                   "parts are of one size, and have no activation"));
    bool skip = !tensor_empty(l->skip);
    TRY(check_that("linear", !skip || (!active && l->parts < 2),
                   "a skip goes with one layer, not activated"));
    if (skip) TRY(check_dense("linear", "skip", l->skip, ctx->dtype, rows, out));
    bool plain_product = !bias && !active && !skip;
    Dtype y_dtype = plain_product && l->y.dtype == F32 && ctx->dtype == BF16 ? F32 : ctx->dtype;
    TRY(check_dense("linear", "y", l->y, y_dtype, rows, out));
    if (tensor_empty(l->pre))
        return check_that("linear", !active || !ctx->training, "training saves an activation's input in pre");
    TRY(check_that("linear", active, "pre is empty without an activation"));
    return check_dense("linear", "pre", l->pre, ctx->dtype, rows, out);
}

/* An activation is counted as GELU's 8 operations, its derivative as 12. */
Status linear_forward(Ctx *ctx, const LinearForward *l) {
    TRY(check_forward(ctx, l));
    if (tensor_rows(l->x) == 0) return OK;
    double rows = (double)tensor_rows(l->x), in = (double)tensor_width(l->weight);
    double out = (double)tensor_rows(l->weight);
    double elementwise = (tensor_empty(l->bias) ? 0 : 1) + (tensor_empty(l->skip) ? 0 : 1) +
                         (l->activation == ACTIVATION_NONE ? 0 : 8);
    size_t bytes = tensor_bytes(l->x) + tensor_bytes(l->weight) + tensor_bytes(l->bias) +
                   tensor_bytes(l->skip) + tensor_bytes(l->y) + tensor_bytes(l->pre);
    Call call = {.operation = OP_LINEAR,
                 .pass = PASS_FORWARD,
                 .dtype = l->x.dtype,
                 .contract = l,
                 .work = {.flops = rows * out * (2 * in + elementwise), .bytes = (double)bytes},
                 .outputs = {{"y", l->y}, {"pre", l->pre}}};
    return op_run(ctx, &call);
}

static Status check_backward(const Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    TRY(check_forward(ctx, f));
    int64_t rows = tensor_rows(f->x), in = tensor_width(f->weight), out = tensor_rows(f->weight);
    TRY(check_dense("linear", "dy", l->dy, ctx->dtype, rows, out));
    TRY(check_dense("linear", "dweight", l->dweight, wide_dtype(ctx), out, in));
    TRY(check_that("linear", tensor_empty(l->dbias) || !tensor_empty(f->bias), "dbias goes with a bias"));
    if (!tensor_empty(l->dbias)) TRY(check_dense("linear", "dbias", l->dbias, wide_dtype(ctx), 1, out));
    if (!tensor_empty(l->dx)) TRY(check_dense("linear", "dx", l->dx, ctx->dtype, rows, in));
    TRY(check_that("linear", f->activation == ACTIVATION_NONE || l->dy_is_dpre || !tensor_empty(f->pre),
                   "an activation's backward pass has its saved input pre"));
    TRY(check_that("linear", !l->accumulate || (!tensor_empty(l->dx) && !l->input),
                   "only a dx that is no activated layer's gradient is accumulated"));
    if (!l->input) return OK;
    TRY(check_that("linear", f->parts < 2, "what has parts is no activated layer's consumer"));
    TRY(check_that("linear", l->input->activation != ACTIVATION_NONE,
                   "the layer named as input has an activation"));
    return check_dense("linear", "input.pre", l->input->pre, ctx->dtype, rows, in);
}

Status linear_backward(Ctx *ctx, const LinearBackward *l) {
    TRY(check_backward(ctx, l));
    if (tensor_rows(l->dy) == 0) return OK;
    const LinearForward *f = l->forward;
    double rows = (double)tensor_rows(f->x), in = (double)tensor_width(f->weight);
    double out = (double)tensor_rows(f->weight);
    bool active = f->activation != ACTIVATION_NONE && !l->dy_is_dpre, dx = !tensor_empty(l->dx);
    double flops =
        rows * out * (2 * in * (dx ? 2 : 1) + (tensor_empty(l->dbias) ? 0 : 1) + (active ? 12 : 0));
    size_t bytes = tensor_bytes(l->dy) + tensor_bytes(f->x) + 2 * tensor_bytes(l->dweight) +
                   2 * tensor_bytes(l->dbias) + (active ? tensor_bytes(f->pre) : 0);
    if (dx) bytes += tensor_bytes(f->weight) + tensor_bytes(l->dx) * (l->accumulate ? 2 : 1);
    if (dx && l->input) {
        flops += 12 * rows * in;
        bytes += tensor_bytes(l->input->pre);
    }
    Call call = {.operation = OP_LINEAR,
                 .pass = PASS_BACKWARD,
                 .dtype = f->x.dtype,
                 .contract = l,
                 .work = {.flops = flops, .bytes = (double)bytes}};
    int outputs = 0;
    if (dx) call.outputs[outputs++] = (Output){"dx", l->dx};
    call.outputs[outputs++] = (Output){"dweight", l->dweight};
    call.outputs[outputs] = (Output){"dbias", l->dbias};
    return op_run(ctx, &call);
}
