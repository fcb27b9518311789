#include "base/checked.h"
#include "base/memory.h"
#include "kernels/example.h"
#include "optim/adamw.h"

static Status take_state(Ctx *ctx, ExampleCall *e, Adamw *a) {
    const Dtype wide = wide_dtype(ctx);
    const double rate = 1e-3;
    const float rate32 = 1e-3f;
    TRY(example_normals(ctx, e, "state", wide, shape1(ADAMW_STATE_SIZE), 0, &a->state));
    if (!e->first || ctx->measuring) return OK;
    const void *value = wide == F64 ? (const void *)&rate : &rate32;
    return ctx->device->upload(ctx->device, a->state.data, value, dtype_size(wide)); // ADAMW_LEARNING_RATE
}

static Status run(Ctx *ctx, ExampleCall *e) {
    const Dtype type = ctx->dtype, wide = wide_dtype(ctx);
    const int64_t count = pieces(e->batch * e->seq * e->width, ADAMW_UNIT) * ADAMW_UNIT;
    const int64_t words = adamw_words(count);
    const Shape all = shape1(count);
    const AdamwParameter parameter = {0, count, true};
    OWNED int32_t *marks = memory_array((size_t)words, sizeof *marks);
    adamw_mark(&parameter, 1, marks);
    Adamw a = {.steps = ADAMW_WHOLE, .count = 1, .parameters = &parameter};
    a.beta1 = 0.9, a.beta2 = 0.999, a.eps = 1e-8, a.weight_decay = 0.1, a.clip = 1;
    TRY(example_normals(ctx, e, "weight", type, all, 1, &a.weight));
    if (type != wide) TRY(example_normals(ctx, e, "master", wide, all, 1, &a.master));
    TRY(example_normals(ctx, e, "gradient", wide, all, 1, &a.gradient));
    TRY(example_normals(ctx, e, "m", wide, all, 0, &a.m));
    TRY(example_normals(ctx, e, "v", wide, all, 0, &a.v));
    TRY(example_values(ctx, e, "decays", I32, shape1(words), marks, &a.decays));
    TRY(example_normals(ctx, e, "squares", F64, shape1(adamw_blocks(0, count)), 0, &a.squares));
    TRY(example_normals(ctx, e, "loss", wide, shape1(1), 0, &a.loss));
    TRY(take_state(ctx, e, &a));
    return adamw_update(ctx, &a);
}

const Example adamw_example = {
    .what = "an update of batch * seq * width parameters",
    .run = run,
};
