#include "kernels/dropout/dropout.h"
#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const Shape rows = shape3(e->batch, e->seq, e->width);
    DropoutForward f = {.dropout = {.rate = 0.1, .seed = 1}};
    TRY(example_normals(ctx, e, "x", ctx->dtype, rows, 1, &f.x));
    TRY(example_normals(ctx, e, "y", ctx->dtype, rows, 0, &f.y));
    TRY(example_integers(ctx, e, "draw", shape1(1), 1, &f.dropout.draw));
    TRY(dropout_forward(ctx, &f));
    if (!ctx->training) return OK;
    DropoutBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", ctx->dtype, rows, 1, &b.dy));
    TRY(example_normals(ctx, e, "dx", ctx->dtype, rows, 0, &b.dx));
    return dropout_backward(ctx, &b);
}

const Example dropout_example = {
    .what = "a tenth of batch * seq rows of width set to zero",
    .run = run,
};
