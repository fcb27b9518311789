#include "kernels/decode/decode.h"
#include "kernels/example.h"

#include <math.h>

static Status take_affine(Ctx *ctx, ExampleCall *e, const char *name, int64_t out, int64_t in,
                          DecodeAffine *a) {
    const Shape shape = in ? shape2(out, in) : shape1(out);
    TRY(example_normals(ctx, e, name, ctx->dtype, shape, in ? 1 / sqrt((double)in) : 1, &a->weight));
    return example_normals(ctx, e, name, ctx->dtype, shape1(out), 1, &a->bias);
}

static Status take_layer(Ctx *ctx, ExampleCall *e, DecodeLayer *l) {
    const int64_t C = e->width, kv = C / e->heads * e->kv_heads;
    TRY(take_affine(ctx, e, "norm1", C, 0, &l->norm1));
    TRY(take_affine(ctx, e, "qkv", C + 2 * kv, C, &l->qkv));
    TRY(take_affine(ctx, e, "projection", C, C, &l->projection));
    TRY(take_affine(ctx, e, "norm2", C, 0, &l->norm2));
    TRY(take_affine(ctx, e, "expand", e->hidden, C, &l->expand));
    TRY(take_affine(ctx, e, "contract", C, e->hidden, &l->contract));
    TRY(example_normals(ctx, e, "cache_k", ctx->dtype, shape2(e->seq, kv), 1, &l->cache_k));
    return example_normals(ctx, e, "cache_v", ctx->dtype, shape2(e->seq, kv), 1, &l->cache_v);
}

/* The position of the last token that fits the cache. */
static Status run(Ctx *ctx, ExampleCall *e) {
    if (e->batch != 1)
        return fail(ERROR_USAGE, "--op=decode: one token of one sequence is decoded; add --batch=1");
    DecodeLayer layer = {.name = "layer 0"};
    Decode d = {.layers = &layer,
                .layer_count = 1,
                .heads = e->heads,
                .kv_heads = e->kv_heads,
                .token_scale = 1,
                .scale = 1 / sqrt((double)(e->width / e->heads)),
                .eps = 1e-5,
                .activation = ACTIVATION_GELU_TANH,
                .past = e->seq - 1};
    const Shape table = shape2(e->padded, e->width);
    TRY(take_layer(ctx, e, &layer));
    TRY(take_affine(ctx, e, "final norm", e->width, 0, &d.final_norm));
    TRY(example_integers(ctx, e, "id", shape1(1), e->vocab, &d.token_id));
    TRY(example_normals(ctx, e, "token", ctx->dtype, table, 1, &d.token));
    TRY(example_normals(ctx, e, "position", ctx->dtype, shape2(e->seq, e->width), 1, &d.position));
    TRY(example_normals(ctx, e, "head", ctx->dtype, table, 1 / sqrt((double)e->width), &d.head));
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), shape2(1, e->padded), &d.logits));
    return decode_forward(ctx, &d);
}

const Example decode_example = {
    .what = "a token through one layer and the head, behind seq - 1 others in the cache",
    .run = run,
    .composed = true,
};
