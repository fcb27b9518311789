#include "kernels/embed/embed.h"
#include "kernels/real.h"

static void gather(const real *table, const int32_t *tokens, int64_t count, int64_t width, real *y) {
    for (int64_t n = 0; n < count; n++)
        for (int64_t c = 0; c < width; c++) y[n * width + c] = table[tokens[n] * width + c];
}

static void gather_positions(const real *table, int64_t batch, int64_t columns, int64_t width, real *y) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < columns * width; i++) y[b * columns * width + i] = table[i];
}

static void add(const real *x, int64_t count, real *y) {
    for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

Status SPEC(embed_forward)(Ctx *ctx, const void *contract) {
    const EmbedForward *e = contract;
    int64_t batch = tensor_rows(e->tokens), columns = tensor_width(e->tokens), width = tensor_width(e->y);
    PRIMITIVE (ctx, "token gather") gather(e->token.data, e->tokens.data, batch * columns, width, e->y.data);
    if (tensor_empty(e->position)) return OK;
    Tensor positions; // (B, T, C)
    TRY(take(ctx, ARENA_SCRATCH, "embed.positions", e->y.dtype, e->y.shape, &positions));
    PRIMITIVE (ctx, "position gather")
        gather_positions((const real *)e->position.data + e->past * width, batch, columns, width,
                         positions.data);
    PRIMITIVE (ctx, "add") add(positions.data, tensor_count(e->y), e->y.data);
    return OK;
}

static void scatter_add(const real *dy, const int32_t *tokens, int64_t count, int64_t width, real *dtable) {
    for (int64_t n = 0; n < count; n++)
        for (int64_t c = 0; c < width; c++) dtable[tokens[n] * width + c] += dy[n * width + c];
}

Status SPEC(embed_backward)(Ctx *ctx, const void *contract) {
    const EmbedBackward *e = contract;
    const EmbedForward *f = e->forward;
    int64_t batch = tensor_rows(f->tokens), columns = tensor_width(f->tokens), width = tensor_width(f->y);
    PRIMITIVE (ctx, "token scatter add")
        scatter_add(e->dy.data, f->tokens.data, batch * columns, width, e->dtoken.data);
    if (tensor_empty(f->position)) return OK;
    PRIMITIVE (ctx, "position sum") {
        real *dposition = (real *)e->dposition.data + f->past * width;
        for (int64_t b = 0; b < batch; b++)
            add((const real *)e->dy.data + b * columns * width, columns * width, dposition);
    }
    return OK;
}
