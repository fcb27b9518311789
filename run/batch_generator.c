#include "run/batch_generator.h"

#include "base/memory.h"
#include "kernels/gather/gather.h"
#include "run/generate.h"

/* Tokens per row that are read at once. */
static int64_t chunk_of(const BatchGenerator *g) {
    int64_t chunk = PREFILL / g->rows;
    if (chunk < 1) chunk = 1;
    return chunk < g->window ? chunk : g->window;
}

void batch_generator_open(Transformer *model, int64_t rows, int64_t window, BatchGenerator *g) {
    *g = (BatchGenerator){.model = model, .rows = rows, .window = window};
    g->ids = memory_array((size_t)(rows * chunk_of(g)), sizeof *g->ids);
    g->values = memory_array((size_t)(rows * config_padded_vocab(&model->config)), sizeof *g->values);
}

void batch_generator_close(BatchGenerator *g) {
    memory_free(g->ids);
    memory_free(g->values);
    *g = (BatchGenerator){0};
}

/* Computes the logits after the next T tokens of each row, which are in g->tokens. */
static Status pass(Ctx *ctx, BatchGenerator *g, int64_t T) {
    int64_t C = g->model->config.width;
    const DeviceBatch inputs = {.tokens = tensor_view(g->tokens.data, I32, shape2(g->rows, T))};
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    scope_begin_phase(ctx, PHASE_FORWARD);
    TRY(transformer_forward(ctx, g->model, &inputs, &g->cache));
    GatherForward last = {
        .x = tensor_reshape(g->model->hidden, shape2(g->rows * T, C)), .rows = g->last, .y = g->hidden};
    TRY(gather_forward(ctx, &last, ARENA_SCRATCH));
    TRY(transformer_logits(ctx, g->model, g->hidden, g->logits));
    scope_end(ctx);
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

Status batch_generator_take(Ctx *ctx, BatchGenerator *g) {
    const Config *c = &g->model->config;
    int64_t chunk = chunk_of(g);
    TRY(take(ctx, ARENA_SAVED, "generated tokens", I32, shape2(g->rows, chunk), &g->tokens));
    TRY(take(ctx, ARENA_SAVED, "last positions", I32, shape1(g->rows), &g->last));
    TRY(take(ctx, ARENA_SAVED, "last hidden states", ctx->dtype, shape2(g->rows, c->width), &g->hidden));
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), shape2(g->rows, config_padded_vocab(c)),
             &g->logits));
    TRY(transformer_take_cache(ctx, g->model, g->rows, g->window, 0, &g->cache));
    if (!ctx->measuring) return OK;
    g->cache.length = g->window - chunk;
    TRY(pass(ctx, g, chunk));
    g->cache.length = g->window - 1; // the last step
    TRY(pass(ctx, g, 1));
    g->cache.length = 0;
    return OK;
}

/* The token of a row at a position. A row that has ended repeats its last token. */
static int32_t token_at(const BatchRow *row, int64_t position) {
    return row->text.ids[position < row->text.count ? position : row->text.count - 1];
}

/* Reads the next T tokens of each row. Missing rows of the batch repeat its last row. */
static Status read_tokens(Ctx *ctx, BatchGenerator *g, const BatchRow *rows, int64_t count, int64_t T) {
    Device *device = ctx->device;
    for (int64_t r = 0; r < g->rows; r++) g->ids[r] = (int32_t)((r + 1) * T - 1);
    TRY(device->upload(device, g->last.data, g->ids, (size_t)g->rows * sizeof *g->ids));
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t i = 0; i < T; i++)
            g->ids[r * T + i] = token_at(&rows[r < count ? r : count - 1], g->cache.length + i);
    TRY(device->upload(device, g->tokens.data, g->ids, (size_t)(g->rows * T) * sizeof *g->ids));
    return pass(ctx, g, T);
}

static bool is_done(const BatchRow *row, int64_t tokens) {
    return row->ended || row->text.count - row->prompt == tokens;
}

/* Samples a row's next token from its logits, if its prompt has been read and its text continues. */
static Status draw(const BatchGenerator *g, BatchRow *row, float *logits, int64_t tokens, EndsText ends,
                   const void *context) {
    int32_t token;
    if (is_done(row, tokens) || g->cache.length < row->text.count) return OK;
    if (sampler_penalizes(row->sampler))
        sampler_penalize(row->sampler, row->text.ids, row->text.count, logits);
    TRY(sampler_next(row->sampler, logits, row->text.count - row->prompt, &token));
    row->ended = ends(context, token);
    if (!row->ended) token_list_add(&row->text, token);
    return OK;
}

static bool goes_on(const BatchGenerator *g, const BatchRow *rows, int64_t count, int64_t tokens) {
    bool any = false;
    for (int64_t r = 0; r < count; r++) any = any || !is_done(&rows[r], tokens);
    return any && g->cache.length < g->window;
}

Status batch_generator_run(Ctx *ctx, BatchGenerator *g, BatchRow *rows, int64_t count, int64_t tokens,
                           EndsText ends, const void *context) {
    int64_t width = config_padded_vocab(&g->model->config), shortest = g->window;
    for (int64_t r = 0; r < count; r++) shortest = rows[r].prompt < shortest ? rows[r].prompt : shortest;
    g->cache.length = 0;
    for (int64_t T; goes_on(g, rows, count, tokens);) {
        int64_t left = shortest - g->cache.length, most = chunk_of(g);
        T = left < 1 ? 1 : left < most ? left : most;
        TRY(read_tokens(ctx, g, rows, count, T));
        TRY(values_read(ctx, g->logits, 0, g->rows * width, g->values));
        for (int64_t r = 0; r < count; r++)
            TRY(draw(g, &rows[r], g->values + r * width, tokens, ends, context));
    }
    return OK;
}
