#include "base/checked.h"
#include "base/memory.h"
#include "kernels/example.h"
#include "kernels/gather/gather.h"

enum { STRIDE = 7 }; // about as many rows as a masked-token loss reads

static Status run(Ctx *ctx, ExampleCall *e) {
    const int64_t rows = e->batch * e->seq, count = pieces(rows, STRIDE);
    OWNED int32_t *chosen = memory_array((size_t)count, sizeof *chosen);
    for (int64_t i = 0; i < count; i++) chosen[i] = (int32_t)(i * STRIDE);
    GatherForward f = {0};
    TRY(example_normals(ctx, e, "x", ctx->dtype, shape2(rows, e->width), 1, &f.x));
    TRY(example_values(ctx, e, "rows", I32, shape1(count), chosen, &f.rows));
    TRY(gather_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    GatherBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", ctx->dtype, f.y.shape, 1, &b.dy));
    TRY(example_normals(ctx, e, "dx", ctx->dtype, f.x.shape, 0, &b.dx));
    return gather_backward(ctx, &b);
}

const Example gather_example = {
    .what = "every seventh of batch * seq rows of width",
    .run = run,
};
