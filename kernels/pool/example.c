#include "kernels/example.h"
#include "kernels/pool/pool.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    PoolForward f = {.kind = POOL_MEAN};
    TRY(example_normals(ctx, e, "x", ctx->dtype, shape3(e->batch, e->seq, e->width), 1, &f.x));
    TRY(pool_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    PoolBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", ctx->dtype, f.y.shape, 1, &b.dy));
    TRY(example_normals(ctx, e, "dx", ctx->dtype, f.x.shape, 0, &b.dx));
    return pool_backward(ctx, &b);
}

const Example pool_example = {
    .what = "the mean of seq rows of width, batch times",
    .run = run,
};
