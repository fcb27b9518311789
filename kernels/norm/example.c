#include "kernels/example.h"
#include "kernels/norm/norm.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const Dtype type = ctx->dtype, wide = wide_dtype(ctx);
    const Shape rows = shape3(e->batch, e->seq, e->width), row = shape1(e->width);
    NormForward n = {.kind = NORM_LAYER, .eps = 1e-5};
    TRY(example_normals(ctx, e, "x", type, rows, 1, &n.x));
    TRY(example_normals(ctx, e, "skip", type, rows, 1, &n.skip));
    TRY(example_normals(ctx, e, "weight", type, row, 1, &n.weight));
    TRY(example_normals(ctx, e, "bias", type, row, 1, &n.bias));
    TRY(norm_forward(ctx, &n, ARENA_SAVED));
    if (!ctx->training) return OK;
    NormBackward b = {.forward = &n};
    TRY(example_normals(ctx, e, "dy", type, rows, 1, &b.dy));
    TRY(example_normals(ctx, e, "dr", type, rows, 0, &b.dr));
    TRY(example_normals(ctx, e, "dweight", wide, row, 0, &b.dweight));
    TRY(example_normals(ctx, e, "dbias", wide, row, 0, &b.dbias));
    return norm_backward(ctx, &b);
}

const Example norm_example = {
    .what = "layer norm of x + skip: batch * seq rows of width",
    .run = run,
};
