#include "kernels/cast/cast.h"

#include "kernels/check.h"

static Status check(const Cast *c) {
    TRY(check_present("cast", "x", c->x));
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x);
    TRY(check_dense("cast", "x", c->x, c->x.dtype, rows, width));
    TRY(check_dense("cast", "scale", c->scale, F32, 1, 1));
    if (!tensor_empty(c->y)) TRY(check_dense("cast", "y", c->y, E4M3, rows, width));
    if (!tensor_empty(c->t)) TRY(check_dense("cast", "t", c->t, E4M3, width, rows));
    return tensor_empty(c->rounded) ? OK
                                    : check_dense("cast", "rounded", c->rounded, c->x.dtype, rows, width);
}

/* For each element the maximum, the product with the scale and, where `rounded` is asked for, that with its inverse. */
Status cast_forward(Ctx *ctx, const Cast *c) {
    TRY(check(c));
    if (tensor_count(c->x) == 0) return OK;
    const size_t bytes =
        tensor_bytes(c->x) + tensor_bytes(c->y) + tensor_bytes(c->t) + tensor_bytes(c->rounded);
    const Call call = {.operation = OP_CAST,
                       .pass = PASS_FORWARD,
                       .dtype = c->x.dtype,
                       .contract = c,
                       .work = {.flops = (tensor_empty(c->rounded) ? 2 : 3) * (double)tensor_count(c->x),
                                .bytes = (double)bytes},
                       .inputs = {c->x},
                       .outputs = {{"scale", c->scale}, {"y", c->y}, {"t", c->t}, {"rounded", c->rounded}}};
    return op_run(ctx, &call);
}

Status cast_values(Ctx *ctx, Tensor x, Tensor *rounded) {
    Cast c = {.x = x};
    TRY(take(ctx, ARENA_SCRATCH, "scale", F32, shape1(1), &c.scale));
    TRY(take(ctx, ARENA_SCRATCH, "rounded", x.dtype, x.shape, &c.rounded));
    *rounded = c.rounded;
    return cast_forward(ctx, &c);
}

Status cast_take_transpose(Ctx *ctx, ArenaKind saved, Cast *c) {
    const Shape shape = shape2(tensor_width(c->x), tensor_rows(c->x));
    TRY(take(ctx, saved, "scale", F32, shape1(1), &c->scale));
    return take(ctx, saved, "8 bits, transposed", E4M3, shape, &c->t);
}

Status cast_bytes(Ctx *ctx, Cast *c) {
    TRY(take_missing(ctx, ARENA_SCRATCH, "scale", F32, shape1(1), &c->scale));
    TRY(take(ctx, ARENA_SCRATCH, "8 bits", E4M3, c->x.shape, &c->y));
    return cast_forward(ctx, c);
}
