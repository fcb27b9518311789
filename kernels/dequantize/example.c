#include "kernels/dequantize/dequantize.h"
#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const int64_t rows = e->batch * e->seq, groups = rows * e->width / GROUP;
    Dequantize d = {0};
    if (e->width % GROUP || rows % GROUP_ROWS)
        return fail(ERROR_USAGE, "--op=dequantize: give a --width of whole groups of 32, and a --batch and "
                                 "--seq of a multiple of 8 rows");
    TRY(example_integers(ctx, e, "x", shape1(groups * GROUP / 4), INT32_MAX, &d.x));
    d.x = tensor_view(d.x.data, I8, shape2(rows, e->width));
    Tensor scales;
    TRY(example_normals(ctx, e, "scales", BF16, shape1(groups), 0.01, &scales));
    d.x.scales = scales.data;
    TRY(take(ctx, ARENA_SAVED, "y", ctx->dtype, d.x.shape, &d.y));
    return dequantize_forward(ctx, &d);
}

const Example dequantize_example = {
    .what = "batch * seq rows of width of 8-bit integers, by groups of 32",
    .run = run,
};
