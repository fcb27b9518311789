#include "run/batch_generator.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

enum { PIECE = 256, PLACES_TOGETHER = 8 };

/* Tokens of the largest pass. */
static int64_t most_tokens(const BatchGenerator *g) {
    return g->rows > g->piece ? g->rows : g->piece;
}

void batch_generator_open(Transformer *model, int64_t rows, int64_t window, BatchGenerator *g) {
    *g = (BatchGenerator){.model = model, .rows = rows, .window = window};
    g->piece = window < PIECE ? window : PIECE;
    g->places = memory_array((size_t)rows, sizeof *g->places);
    g->ids = memory_array((size_t)most_tokens(g), sizeof *g->ids);
    g->values = memory_array((size_t)(rows * config_padded_vocab(&model->config)), sizeof *g->values);
    g->numbers = memory_array((size_t)rows, sizeof *g->numbers);
}

void batch_generator_close(BatchGenerator *g) {
    memory_free(g->places);
    memory_free(g->ids);
    memory_free(g->values);
    memory_free(g->numbers);
    if (g->sampled) g->device->release_pinned(g->device, g->sampled);
    *g = (BatchGenerator){0};
}

static Status upload(Ctx *ctx, const BatchGenerator *g, int64_t count, Tensor to) {
    return ctx->measuring ? OK
                          : ctx->device->upload(ctx->device, to.data, g->ids, (size_t)count * sizeof *g->ids);
}

static Tensor first_rows(Tensor t, int64_t rows) {
    return tensor_elements(t, 0, t.shape.rank == 1 ? shape1(rows) : shape2(rows, tensor_width(t)));
}

/* Reads T tokens, which are in g->tokens, of each of B rows; `logits`, where T = 1: computes the logits after
 * them. */
static Status pass(Ctx *ctx, BatchGenerator *g, int64_t B, int64_t T, bool logits) {
    const DeviceBatch inputs = {.tokens = tensor_view(g->tokens.data, I32, shape2(B, T))};
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    scope_begin_phase(ctx, PHASE_FORWARD);
    TRY(transformer_forward(ctx, g->model, &inputs, &g->cache));
    if (logits) {
        const Tensor last = tensor_reshape(g->model->hidden, shape2(B, g->model->config.width));
        TRY(transformer_logits(ctx, g->model, last, first_rows(g->logits, B)));
    }
    scope_end(ctx);
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

/* Reads `count` tokens, which are in g->ids, of the text at place `first` alone. */
static Status pass_piece(Ctx *ctx, BatchGenerator *g, int64_t first, int64_t past, int64_t count) {
    g->cache.first = first;
    g->cache.length = past;
    g->cache.lengths = (Tensor){0};
    TRY(upload(ctx, g, count, g->tokens));
    return pass(ctx, g, 1, count, false);
}

/* ---- sampling on the device ---- */

/* The rule by which all rows are sampled on the device; false if they are sampled on the host. */
static bool draws_on_device(const Ctx *ctx, const BatchGenerator *g, SampleRule *rule) {
    if (!sample_cuda || ctx->device->backend != BACKEND_CUDA || !replay_allowed(ctx)) return false;
    *rule = sampler_rule(g->places[0].sampler);
    for (int64_t r = 0; r < g->count; r++) {
        const SampleRule own = sampler_rule(g->places[r].sampler);
        if (sampler_penalizes(g->places[r].sampler) || !sample_rules_equal(&own, rule)) return false;
    }
    return true;
}

static Status draw_on_device(Ctx *ctx, const BatchGenerator *g, int64_t rows) {
    const ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    const Sample sample = {.rule = g->rule,
                           .logits = first_rows(g->logits, rows),
                           .vocab = g->model->config.vocab,
                           .uniforms = g->uniforms,
                           .position = first_rows(g->positions, rows),
                           .token = first_rows(g->tokens, rows),
                           .sampled = g->sampled};
    TRY(sample_cuda(ctx, &sample));
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    return OK;
}

static Status upload_draws(Ctx *ctx, BatchGenerator *g, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        const BatchRow *row = &g->places[r];
        g->ids[r] = (int32_t)r;
        g->numbers[r] = r < g->count ? sampler_uniform(row->sampler, row->text.count - row->prompt) : 0;
    }
    TRY(upload(ctx, g, rows, g->positions));
    return ctx->device->upload(ctx->device, g->uniforms.data, g->numbers, (size_t)rows * sizeof *g->numbers);
}

/* ---- passes ---- */

static Status step_work(Ctx *ctx, void *program) {
    BatchGenerator *g = program;
    const int64_t rows = tensor_count(g->cache.lengths);
    TRY(pass(ctx, g, rows, 1, true));
    return g->draws ? draw_on_device(ctx, g, rows) : OK;
}

/* Reads one token, which is in g->ids, of each of `count` places; `past`: the most tokens that one has in the
 * cache. A captured step reads the lengths on the device; on the host its past is that of the longest. */
static Status pass_step(Ctx *ctx, BatchGenerator *g, int64_t count, int64_t past) {
    double terms[REPLAY_TERMS] = {[SAMPLE_TERMS] = (double)count, g->draws};
    sample_rule_terms(&g->rule, terms);
    g->cache.first = 0;
    g->cache.length = replay_allowed(ctx) ? g->window - 1 : past;
    g->cache.lengths = first_rows(g->lengths, count);
    TRY(upload(ctx, g, count, g->tokens));
    return replay_run(ctx, &g->step, terms, step_work, g);
}

static Status rehearse(Ctx *ctx, BatchGenerator *g) {
    TRY(pass_piece(ctx, g, 0, g->window - g->piece, g->piece));
    g->draws = sample_cuda && ctx->device->backend == BACKEND_CUDA;
    return pass_step(ctx, g, g->rows, g->window - 1);
}

Status batch_generator_take(Ctx *ctx, BatchGenerator *g) {
    const Config *c = &g->model->config;
    TRY(take(ctx, ARENA_SAVED, "generated tokens", I32, shape1(most_tokens(g)), &g->tokens));
    TRY(take(ctx, ARENA_SAVED, "cached lengths", I32, shape1(g->rows), &g->lengths));
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), shape2(g->rows, config_padded_vocab(c)),
             &g->logits));
    TRY(take(ctx, ARENA_SAVED, "positions", I32, shape1(g->rows), &g->positions));
    TRY(take(ctx, ARENA_SAVED, "random numbers", F64, shape1(g->rows), &g->uniforms));
    TRY(transformer_take_cache(ctx, g->model, g->rows, g->window, 0, &g->cache));
    if (ctx->measuring) return rehearse(ctx, g);
    void *sampled;
    TRY(ctx->device->pinned(ctx->device, (size_t)g->rows * sizeof *g->sampled, &sampled));
    g->device = ctx->device;
    g->sampled = sampled;
    return OK;
}

/* ---- places ---- */

static void close_row(BatchRow *row) {
    token_list_free(&row->text);
    sampler_close(row->sampler);
    *row = (BatchRow){0};
}

static bool is_free(const BatchRow *row) {
    return row->text.count == 0;
}

static bool is_done(const BatchGenerator *g, const BatchRow *row) {
    return row->ended || row->text.count - row->prompt == g->texts->tokens || row->text.count > g->window;
}

static Status finish_texts(BatchGenerator *g) {
    for (int64_t r = 0; r < g->count; r++) {
        if (!is_done(g, &g->places[r])) continue;
        TRY(g->texts->finish(g->texts->context, &g->places[r]));
        close_row(&g->places[r]);
    }
    return OK;
}

/* Moves a text with its part of the cache to a free place. */
static Status move(Ctx *ctx, BatchGenerator *g, int64_t from, int64_t to) {
    const Tensor caches[] = {g->cache.k, g->cache.v};
    const int64_t elements = g->places[from].read * tensor_width(g->cache.k);
    for (int64_t layer = 0; layer < g->model->config.layers; layer++)
        for (int i = 0; i < 2; i++)
            TRY(ctx->device->copy(ctx->device, cache_rows(caches[i], layer, to, 1).data,
                                  cache_rows(caches[i], layer, from, 1).data,
                                  (size_t)elements * dtype_size(g->cache.k.dtype)));
    g->places[to] = g->places[from];
    g->places[from] = (BatchRow){0};
    return OK;
}

/* Gives free places to the next prompts or, if none is left, to the last texts, so that the places in use are
 * the first. */
static Status fill_places(Ctx *ctx, BatchGenerator *g) {
    bool any = true;
    for (int64_t r = 0; r < g->rows; r++) {
        if (!is_free(&g->places[r])) continue;
        if (any) TRY(g->texts->next(g->texts->context, &g->places[r], &any));
        if (any && r >= g->count) g->count = r + 1;
        if (any) continue;
        while (g->count > r && is_free(&g->places[g->count - 1])) g->count--;
        if (g->count <= r) break;
        TRY(move(ctx, g, --g->count, r));
    }
    return OK;
}

static Status draw_on_host(Ctx *ctx, const BatchGenerator *g, int64_t r, int32_t *token) {
    const BatchRow *row = &g->places[r];
    const int64_t width = tensor_width(g->logits);
    float *logits = g->values + r * width;
    if (g->draws)
        TRY(values_read(ctx, g->logits, r * width, width, logits)); // to say what is wrong with them
    if (sampler_penalizes(row->sampler))
        sampler_penalize(row->sampler, row->text.ids, row->text.count, logits);
    return sampler_next(row->sampler, logits, row->text.count - row->prompt, token);
}

/* Adds a row's next token, if its prompt has been read and its text continues. */
static Status draw(Ctx *ctx, const BatchGenerator *g, int64_t r) {
    BatchRow *row = &g->places[r];
    if (is_done(g, row) || row->read < row->text.count) return OK;
    int32_t token = g->draws ? g->sampled[r] : -1;
    if (token < 0) TRY(draw_on_host(ctx, g, r, &token));
    row->ended = g->texts->ends(g->texts->context, row, token);
    if (!row->ended) token_list_add(&row->text, token);
    return OK;
}

static Status draw_all(Ctx *ctx, BatchGenerator *g) {
    if (g->draws)
        TRY(ctx->device->synchronize(ctx->device));
    else
        TRY(values_read(ctx, g->logits, 0, g->count * tensor_width(g->logits), g->values));
    for (int64_t r = 0; r < g->count; r++) {
        g->places[r].read++;
        TRY(draw(ctx, g, r));
    }
    return OK;
}

/* ---- a step ---- */

/* The last token of a prompt is left to the step, which computes its logits. */
static Status read_pieces(Ctx *ctx, BatchGenerator *g) {
    int64_t left = g->piece;
    for (int64_t r = 0; r < g->count && left > 0; r++) {
        BatchRow *row = &g->places[r];
        int64_t count = row->text.count - 1 - row->read;
        if (count > left) count = left;
        if (count <= 0) continue;
        memcpy(g->ids, row->text.ids + row->read, (size_t)count * sizeof *g->ids);
        TRY(pass_piece(ctx, g, r, row->read, count));
        row->read += count;
        left -= count;
    }
    return OK;
}

/* The rows of a step. Each number of rows has a graph and tuned products of its own, so that a step that can
 * be captured takes some free places along, which read a token of no text. */
static int64_t rows_of_step(const Ctx *ctx, const BatchGenerator *g) {
    const int64_t rows = pieces(g->count, PLACES_TOGETHER) * PLACES_TOGETHER;
    return replay_allowed(ctx) && g->count > 1 ? (rows < g->rows ? rows : g->rows) : g->count;
}

static Status step(Ctx *ctx, BatchGenerator *g) {
    const int64_t rows = rows_of_step(ctx, g);
    int64_t most = 0;
    g->draws = draws_on_device(ctx, g, &g->rule);
    if (g->draws) TRY(upload_draws(ctx, g, rows));
    for (int64_t r = 0; r < rows; r++) {
        g->ids[r] = (int32_t)g->places[r].read;
        most = g->places[r].read > most ? g->places[r].read : most;
    }
    TRY(upload(ctx, g, rows, g->lengths));
    for (int64_t r = 0; r < rows; r++)
        g->ids[r] = is_free(&g->places[r]) ? 0 : g->places[r].text.ids[g->places[r].read];
    TRY(pass_step(ctx, g, rows, most));
    return draw_all(ctx, g);
}

static Status run(Ctx *ctx, BatchGenerator *g) {
    for (;;) {
        TRY(finish_texts(g));
        TRY(fill_places(ctx, g));
        if (!g->count) return OK;
        TRY(read_pieces(ctx, g));
        TRY(step(ctx, g));
    }
}

Status batch_generator_run(Ctx *ctx, BatchGenerator *g, const BatchTexts *texts) {
    g->texts = texts;
    Status status = run(ctx, g);
    for (int64_t r = 0; r < g->rows; r++) close_row(&g->places[r]);
    replay_close(ctx->device, &g->step);
    g->count = 0;
    return status;
}
