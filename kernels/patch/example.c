#include "kernels/example.h"
#include "kernels/patch/patch.h"

enum { SIDE = 16, CHANNELS = 3 };

/* The largest divisor of n that is at most its square root. */
static int64_t shorter_side(int64_t n) {
    int64_t side = 1;
    for (int64_t i = 2; i * i <= n; i++)
        if (n % i == 0) side = i;
    return side;
}

static Status run(Ctx *ctx, ExampleCall *e) {
    const Dtype type = ctx->dtype, wide = wide_dtype(ctx);
    const int64_t inputs = CHANNELS * SIDE * SIDE, down = shorter_side(e->seq), across = e->seq / down;
    const Shape weight = shape2(e->width, inputs), positions = shape2(e->seq, e->width);
    PatchForward f = {.mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}, .size = SIDE};
    Tensor pixels; // each integer fills four pixel bytes with all possible values
    TRY(example_integers(ctx, e, "pixels", shape1(e->batch * e->seq * inputs / 4), INT32_MAX, &pixels));
    f.pixels = tensor_view(pixels.data, U8, shape4(e->batch, SIDE * down, SIDE * across, CHANNELS));
    TRY(example_normals(ctx, e, "weight", type, weight, 0.02, &f.weight));
    TRY(example_normals(ctx, e, "bias", type, shape1(e->width), 1, &f.bias));
    TRY(example_normals(ctx, e, "position", type, positions, 1, &f.position));
    TRY(patch_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    PatchBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", type, f.y.shape, 1, &b.dy));
    TRY(example_normals(ctx, e, "dweight", wide, weight, 0, &b.dweight));
    TRY(example_normals(ctx, e, "dbias", wide, shape1(e->width), 0, &b.dbias));
    TRY(example_normals(ctx, e, "dposition", wide, positions, 0, &b.dposition));
    return patch_backward(ctx, &b);
}

const Example patch_example = {
    .what = "batch pictures of seq patches, each 16 x 16 pixels of 3 bytes, to width",
    .run = run,
};
