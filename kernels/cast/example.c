#include "kernels/cast/cast.h"
#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const int64_t rows = e->batch * e->seq;
    Cast c = {0};
    TRY(example_normals(ctx, e, "x", ctx->dtype, shape2(rows, e->width), 1, &c.x));
    TRY(take(ctx, ARENA_SAVED, "y", E4M3, shape2(rows, e->width), &c.y));
    TRY(cast_take_transpose(ctx, ARENA_SAVED, &c));
    return cast_forward(ctx, &c);
}

const Example cast_example = {
    .what = "batch * seq rows of width in 8 bits, and transposed, by their own scale",
    .run = run,
};
