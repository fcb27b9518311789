#include "kernels/embed/embed.h"
#include "kernels/example.h"

static Status run(Ctx *ctx, ExampleCall *e) {
    const Dtype type = ctx->dtype, wide = wide_dtype(ctx);
    const Shape table = shape2(e->vocab, e->width), positions = shape2(e->seq, e->width);
    EmbedForward f = {.scale = 1};
    TRY(example_integers(ctx, e, "tokens", shape2(e->batch, e->seq), e->vocab, &f.tokens));
    TRY(example_normals(ctx, e, "token", type, table, 1, &f.token));
    TRY(example_normals(ctx, e, "position", type, positions, 1, &f.position));
    TRY(embed_forward(ctx, &f, ARENA_SAVED));
    if (!ctx->training) return OK;
    EmbedBackward b = {.forward = &f};
    TRY(example_normals(ctx, e, "dy", type, f.y.shape, 1, &b.dy));
    TRY(example_normals(ctx, e, "dtoken", wide, table, 0, &b.dtoken));
    TRY(example_normals(ctx, e, "dposition", wide, positions, 0, &b.dposition));
    return embed_backward(ctx, &b);
}

const Example embed_example = {
    .what = "rows of a token table (vocab, width) and of positions, for batch * seq tokens",
    .run = run,
};
