#include "kernels/example.h"
#include "kernels/squared_relu/squared_relu.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const Shape rows = shape3(e->batch, e->seq, e->width);
    SquaredReluForward f;
    TRY(example_normals(ctx, e, "x", ctx->dtype, rows, 1, &f.x));
    TRY(take(ctx, ARENA_SAVED, "y", ctx->dtype, rows, &f.y));
    TRY(squared_relu_forward(ctx, &f));
    if (!ctx->training) return OK;
    SquaredReluBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", ctx->dtype, rows, 1, &b.dy));
    TRY(take(ctx, ARENA_SAVED, "dx", ctx->dtype, rows, &b.dx));
    return squared_relu_backward(ctx, &b);
}

const Example squared_relu_example = {.what = "batch * seq rows of width", .run = run};
