#include "kernels/accumulate/accumulate.h"
#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const Shape all = shape1(e->batch * e->seq * e->width);
    Accumulate a;
    TRY(example_normals(ctx, e, "x", wide_dtype(ctx), all, 1, &a.x));
    TRY(example_normals(ctx, e, "sum", wide_dtype(ctx), all, 0, &a.sum));
    return accumulate(ctx, &a);
}

const Example accumulate_example = {
    .what = "batch * seq * width gradients added to a sum",
    .run = run,
};
