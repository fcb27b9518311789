#include "kernels/example.h"
#include "kernels/linear/linear.h"

#include <math.h>

static Status run(Ctx *ctx, ExampleCall *e) {
    const Dtype type = ctx->dtype, wide = wide_dtype(ctx);
    const Shape weight = shape2(e->hidden, e->width), bias = shape1(e->hidden);
    LinearForward f = {.activation = ACTIVATION_GELU_TANH};
    TRY(example_normals(ctx, e, "x", type, shape3(e->batch, e->seq, e->width), 1, &f.x));
    TRY(example_normals(ctx, e, "weight", type, weight, 1 / sqrt((double)e->width), &f.weight));
    TRY(example_normals(ctx, e, "bias", type, bias, 1, &f.bias));
    TRY(linear_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    LinearBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", type, f.y.shape, 1, &b.dy));
    TRY(example_normals(ctx, e, "dx", type, f.x.shape, 0, &b.dx));
    TRY(example_normals(ctx, e, "dweight", wide, weight, 0, &b.dweight));
    TRY(example_normals(ctx, e, "dbias", wide, bias, 0, &b.dbias));
    return linear_backward(ctx, &b);
}

const Example linear_example = {
    .what = "batch * seq rows of width to the feed-forward layer's, with bias and GELU",
    .run = run,
};
