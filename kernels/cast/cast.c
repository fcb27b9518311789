#include "kernels/cast/cast.h"

#include "kernels/check.h"

static Status check(const Cast *c) {
    TRY(check_present("cast", "x", c->x));
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x);
    const Dtype wide = dtype_wide(c->x.dtype);
    TRY(check_dense("cast", "x", c->x, c->x.dtype, rows, width));
    TRY(check_dense("cast", "scale", c->scale, F32, 1, 1));
    if (!tensor_empty(c->y)) TRY(check_dense("cast", "y", c->y, E4M3, rows, width));
    if (!tensor_empty(c->t)) TRY(check_dense("cast", "t", c->t, E4M3, width, rows));
    if (!tensor_empty(c->rounded)) TRY(check_dense("cast", "rounded", c->rounded, c->x.dtype, rows, width));
    if (!tensor_empty(c->given)) TRY(check_dense("cast", "given", c->given, F32, 1, 1));
    if (!tensor_empty(c->seen)) TRY(check_dense("cast", "seen", c->seen, wide, 1, CAST_SEEN));
    if (tensor_empty(c->sums)) return OK;
    TRY(check_that("cast", tensor_empty(c->rounded), "sums are not asked for with rounded"));
    return check_dense("cast", "sums", c->sums, wide, 1, width);
}

/* FLOPs per element: the maximum, the product with the scale, and, if requested, the product with its inverse
 * or the sum. */
Status cast_forward(Ctx *ctx, const Cast *c) {
    TRY(check(c));
    if (tensor_count(c->x) == 0) return OK;
    const bool sums = !tensor_empty(c->sums);
    const size_t bytes = tensor_bytes(c->x) + tensor_bytes(c->y) + tensor_bytes(c->t) +
                         tensor_bytes(c->rounded) + 2 * tensor_bytes(c->sums);
    const int each = 2 + (sums || !tensor_empty(c->rounded));
    const Call call = {.operation = OP_CAST,
                       .pass = PASS_FORWARD,
                       .dtype = c->x.dtype,
                       .contract = c,
                       .work = {.flops = each * (double)tensor_count(c->x), .bytes = (double)bytes},
                       .inputs = {c->x},
                       .outputs = {{"scale", c->scale},
                                   {"y", c->y},
                                   {"t", c->t},
                                   {sums ? "sums" : "rounded", sums ? c->sums : c->rounded}}};
    return op_run(ctx, &call);
}

Status cast_values(Ctx *ctx, Cast *c) {
    TRY(take(ctx, ARENA_SCRATCH, "scale", F32, shape1(1), &c->scale));
    TRY(take(ctx, ARENA_SCRATCH, "rounded", c->x.dtype, c->x.shape, &c->rounded));
    return cast_forward(ctx, c);
}

Status cast_take_transpose(Ctx *ctx, ArenaKind saved, Cast *c) {
    const Shape shape = shape2(tensor_width(c->x), tensor_rows(c->x));
    TRY(take_missing(ctx, saved, "scale", F32, shape1(1), &c->scale));
    return take(ctx, saved, "8 bits, transposed", E4M3, shape, &c->t);
}

Status cast_take_bytes(Ctx *ctx, Cast *c) {
    TRY(take_missing(ctx, ARENA_SCRATCH, "scale", F32, shape1(1), &c->scale));
    return take(ctx, ARENA_SCRATCH, "8 bits", E4M3, c->x.shape, &c->y);
}
