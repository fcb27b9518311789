#include "kernels/attention/attention.h"
#include "kernels/example.h"

#include <math.h>

/* q, k and v are columns of one projection. */
static Status run(Ctx *ctx, ExampleCall *e) {
    const int64_t size = e->width / e->heads, kv = e->kv_heads * size;
    const Shape packed = shape3(e->batch, e->seq, e->width + 2 * kv);
    Tensor qkv, dqkv;
    TRY(example_normals(ctx, e, "qkv", ctx->dtype, packed, 1, &qkv));
    AttentionForward f = {.q = tensor_columns(qkv, 0, e->width),
                          .k = tensor_columns(qkv, e->width, kv),
                          .v = tensor_columns(qkv, e->width + kv, kv),
                          .heads = e->heads,
                          .kv_heads = e->kv_heads,
                          .causal = true,
                          .scale = 1 / sqrt((double)size)};
    TRY(attention_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    TRY(example_normals(ctx, e, "dqkv", ctx->dtype, packed, 0, &dqkv));
    AttentionBackward b = {.forward = &f,
                           .dq = tensor_columns(dqkv, 0, e->width),
                           .dk = tensor_columns(dqkv, e->width, kv),
                           .dv = tensor_columns(dqkv, e->width + kv, kv)};
    TRY(example_normals(ctx, e, "dy", ctx->dtype, f.y.shape, 1, &b.dy));
    return attention_backward(ctx, &b);
}

const Example attention_example = {
    .what = "causal attention of batch rows of seq tokens to themselves, heads of the model's size",
    .run = run,
};
