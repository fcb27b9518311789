#include "kernels/embed/embed.h"
#include "kernels/real.h"

static void gather(const Ctx *ctx, const stored *table, const int32_t *tokens, int64_t count, int64_t width,
                   stored *y) {
    EACH (ctx, n, count, width)
        for (int64_t c = 0; c < width; c++) y[n * width + c] = table[tokens[n] * width + c];
}

static void gather_positions(const Ctx *ctx, const EmbedForward *e, int64_t batch, int64_t count, stored *y) {
    const int32_t *pasts = tensor_empty(e->pasts) ? NULL : e->pasts.data;
    EACH (ctx, b, batch, count) {
        const stored *from = stored_row(e->position, pasts ? pasts[b] : e->past);
        for (int64_t i = 0; i < count; i++) y[b * count + i] = from[i];
    }
}

static void scale(const Ctx *ctx, real factor, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = store(factor * load(y[i]));
}

/* segments NULL: all 0. */
static void gather_segments(const Ctx *ctx, const stored *table, const int32_t *segments, int64_t count,
                            int64_t width, stored *y) {
    EACH (ctx, n, count, width)
        for (int64_t c = 0; c < width; c++)
            y[n * width + c] = table[(segments ? segments[n] : 0) * width + c];
}

static void add(const Ctx *ctx, const stored *x, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = store(load(y[i]) + load(x[i]));
}

static Status embed_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const EmbedForward *e = contract;
    int64_t batch = tensor_rows(e->tokens), columns = tensor_width(e->tokens), width = tensor_width(e->y);
    PRIMITIVE (ctx, "token gather", EMBEDDING, torch_call("aten::embedding"), &e->y)
        gather(ctx, e->token.data, e->tokens.data, batch * columns, width, e->y.data);
    if (e->scale != 1)
        PRIMITIVE (ctx, "scale", EMBEDDING, torch_call("aten::mul"))
            scale(ctx, (real)e->scale, tensor_count(e->y), e->y.data);
    if (!tensor_empty(e->position)) {
        Tensor positions; // (B, T, C)
        TRY(take(ctx, ARENA_SCRATCH, "embed.positions", e->y.dtype, e->y.shape, &positions));
        PRIMITIVE (ctx, "position gather", EMBEDDING, torch_call("aten::embedding"))
            gather_positions(ctx, e, batch, columns * width, positions.data);
        PRIMITIVE (ctx, "add", EMBEDDING, torch_call("aten::add"))
            add(ctx, positions.data, tensor_count(e->y), e->y.data);
    }
    if (tensor_empty(e->segment)) return OK;
    Tensor kinds; // (B, T, C)
    TRY(take(ctx, ARENA_SCRATCH, "embed.segments", e->y.dtype, e->y.shape, &kinds));
    PRIMITIVE (ctx, "segment gather", EMBEDDING, torch_call("aten::embedding"))
        gather_segments(ctx, e->segment.data, e->segments.data, batch * columns, width, kinds.data);
    PRIMITIVE (ctx, "add", EMBEDDING, torch_call("aten::add"))
        add(ctx, kinds.data, tensor_count(e->y), e->y.data);
    return OK;
}
SLOT(EMBED, FORWARD, CPU, NAIVE, STORED_DTYPE, embed_forward_cpu_naive);

/* rows NULL: all 0. */
static void scatter_add(const Ctx *ctx, const stored *dy, const int32_t *rows, int64_t count, int64_t width,
                        real factor, real *dtable) {
#pragma omp parallel num_threads(cpu_threads(ctx)) if (count * width >= EACH_LEAST)
    for (int64_t n = 0; n < count; n++)
#pragma omp for simd schedule(static) nowait
        for (int64_t c = 0; c < width; c++)
            dtable[(rows ? rows[n] : 0) * width + c] += factor * load(dy[n * width + c]);
}

static void add_gradient(const Ctx *ctx, const stored *dy, int64_t count, real *sum) {
    EACH_ELEMENT (ctx, i, count) sum[i] += load(dy[i]);
}

static Status embed_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const EmbedBackward *e = contract;
    const EmbedForward *f = e->forward;
    int64_t batch = tensor_rows(f->tokens), columns = tensor_width(f->tokens), width = tensor_width(f->y);
    PRIMITIVE (ctx, "token scatter add", EMBEDDING, torch_part("aten::embedding_dense_backward"))
        scatter_add(ctx, e->dy.data, f->tokens.data, batch * columns, width, (real)f->scale, e->dtoken.data);
    if (!tensor_empty(e->dposition))
        PRIMITIVE (ctx, "position sum", EMBEDDING, torch_call("aten::embedding_dense_backward")) {
            real *dposition = (real *)e->dposition.data + f->past * width;
            for (int64_t b = 0; b < batch; b++)
                add_gradient(ctx, (const stored *)e->dy.data + b * columns * width, columns * width,
                             dposition);
        }
    if (!tensor_empty(e->dsegment))
        PRIMITIVE (ctx, "segment sum", EMBEDDING, torch_call("aten::embedding_dense_backward"))
            scatter_add(ctx, e->dy.data, f->segments.data, batch * columns, width, 1, e->dsegment.data);
    return OK;
}
SLOT(EMBED, BACKWARD, CPU, NAIVE, STORED_DTYPE, embed_backward_cpu_naive);
