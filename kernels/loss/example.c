#include "kernels/example.h"
#include "kernels/loss/loss.h"

#include <math.h>

static Status run(Ctx *ctx, ExampleCall *e) {
    const int64_t rows = e->batch * e->seq;
    const Shape weight = shape2(e->padded, e->width);
    Loss l = {.vocab = e->vocab, .scale = 1 / (double)rows};
    TRY(example_normals(ctx, e, "hidden", ctx->dtype, shape2(rows, e->width), 1, &l.hidden));
    TRY(example_normals(ctx, e, "weight", ctx->dtype, weight, 1 / sqrt((double)e->width), &l.weight));
    TRY(example_integers(ctx, e, "targets", shape1(rows), e->vocab, &l.targets));
    TRY(example_normals(ctx, e, "loss", wide_dtype(ctx), shape1(1), 0, &l.loss));
    if (ctx->training) TRY(example_normals(ctx, e, "dweight", wide_dtype(ctx), weight, 0, &l.dweight));
    TRY(loss_forward(ctx, &l, ARENA_SAVED));
    return ctx->training ? loss_backward(ctx, &l) : OK;
}

const Example loss_example = {
    .what = "the head (vocab, width) and cross-entropy of batch * seq rows",
    .run = run,
};
