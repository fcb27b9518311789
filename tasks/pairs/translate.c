#include "tasks/pairs/translate.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

static int64_t padded_vocab(const Translator *t) {
    return config_padded_vocab(&t->model->config);
}

/* The number of i32 values of the largest tensor filled from the host. */
static int64_t most_ids(const Translator *t) {
    const TranslateOptions *o = &t->options;
    int64_t sizes[] = {o->sentences * o->source, t->rows * o->most, t->rows * t->model->config.layers};
    int64_t most = sizes[0];
    for (int i = 1; i < 3; i++) most = sizes[i] > most ? sizes[i] : most;
    return most;
}

static bool caches(const Translator *t) {
    return t->options.decoding <= DECODING_SELF;
}

/* Rows of logits of a step over T tokens. */
static int64_t logit_rows(const Translator *t, int64_t T) {
    return t->options.decoding == DECODING_ALL ? t->rows * T : t->rows;
}

static Status allocate(Translator *t) {
    const TranslateOptions *o = &t->options;
    BeamOptions beams = {.sentences = o->sentences,
                         .width = o->beam,
                         .penalty = o->penalty,
                         .begin = o->begin,
                         .end = o->end,
                         .least = o->least,
                         .most = o->most,
                         .vocab = t->model->config.vocab};
    TRY(beams_open(&beams, &t->beams));
    t->ids = memory_array((size_t)most_ids(t), sizeof *t->ids);
    t->next = memory_array((size_t)t->rows, sizeof *t->next);
    t->parents = memory_array((size_t)t->rows, sizeof *t->parents);
    t->values = memory_array((size_t)(t->rows * padded_vocab(t)), sizeof *t->values);
    return OK;
}

Status translator_open(const TranslateOptions *options, Transformer *model, Translator *t) {
    const Config *c = &model->config;
    *t = (Translator){.options = *options, .model = model, .rows = options->sentences * options->beam};
    if (!c->encoder_layers) return fail(ERROR_USAGE, "only a model with an encoder can translate");
    if (options->source > c->context || options->most > c->context)
        return fail(ERROR_USAGE, "%lld tokens are more than the model's context of %lld",
                    (long long)(options->source > options->most ? options->source : options->most),
                    (long long)c->context);
    Status status = allocate(t);
    if (status) translator_close(t);
    return status;
}

void translator_close(Translator *t) {
    beams_close(t->beams);
    memory_free(t->ids);
    memory_free(t->next);
    memory_free(t->parents);
    memory_free(t->values);
    *t = (Translator){0};
}

/* ---- passes ---- */

static Status upload(Ctx *ctx, Tensor to, const int32_t *values, int64_t count) {
    assert(count <= tensor_count(to));
    return ctx->device->upload(ctx->device, to.data, values, (size_t)count * sizeof *values);
}

static Tensor i32_view(Tensor t, Shape shape) {
    return tensor_view(t.data, I32, shape);
}

/* Gathers rows[i] of a matrix into a new tensor. */
static Status gather(Ctx *ctx, Tensor from, Tensor rows, Tensor to) {
    GatherForward g = {.x = from, .rows = rows, .y = to};
    return gather_forward(ctx, &g, ARENA_SCRATCH);
}

/* Encodes sources (sentences, S) and copies each sentence's output to its rows, (rows, S, C). */
static Status encode(Ctx *ctx, Translator *t, int64_t S, Tensor *memory) {
    int64_t N = t->options.sentences, C = t->model->config.width;
    Tensor source = i32_view(t->source, shape2(N, S)), lengths = i32_view(t->source_lengths, shape1(N));
    TRY(transformer_encode(ctx, t->model, source, lengths));
    *memory = t->model->memory;
    if (t->rows > N) {
        TRY(take(ctx, ARENA_SAVED, "memory of rows", ctx->dtype, shape3(t->rows, S, C), memory));
        TRY(gather(ctx, tensor_reshape(t->model->memory, shape2(N, S * C)), t->repeated,
                   tensor_reshape(*memory, shape2(t->rows, S * C))));
    }
    return OK;
}

/* Computes the logits after tokens (rows, T), which are in t->tokens. Only the last position is computed,
 * except with DECODING_ALL. */
static Status decode(Ctx *ctx, Translator *t, int64_t T, Tensor memory) {
    int64_t C = t->model->config.width;
    Arena *saved = &ctx->arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    DeviceBatch in = {.tokens = i32_view(t->tokens, shape2(t->rows, T))};
    if (t->options.decoding != DECODING_CACHED) {
        in.memory = memory;
        in.source_lengths = t->source_lengths;
    }
    TRY(transformer_forward(ctx, t->model, &in, caches(t) ? &t->cache : NULL));
    Tensor last = tensor_reshape(t->model->hidden, shape2(t->rows * T, C));
    if (T > 1 && t->options.decoding != DECODING_ALL) {
        Tensor all = last;
        TRY(take(ctx, ARENA_SAVED, "last positions", ctx->dtype, shape2(t->rows, C), &last));
        TRY(gather(ctx, all, i32_view(t->gathered, shape1(t->rows)), last));
    }
    Shape shape = shape2(logit_rows(t, T), padded_vocab(t));
    TRY(transformer_logits(ctx, t->model, last, tensor_view(t->logits.data, t->logits.dtype, shape)));
    arena_release(saved, mark);
    return OK;
}

static void swap(Tensor *a, Tensor *b) {
    Tensor kept = *a;
    *a = *b;
    *b = kept;
}

/* The cache's rows become copies of their parents. */
static Status move_cache(Ctx *ctx, Translator *t) {
    int64_t layers = t->model->config.layers, count = layers * t->rows;
    bool moved = false;
    for (int64_t i = 0; i < count; i++)
        t->ids[i] = (int32_t)(i / t->rows * t->rows) + t->parents[i % t->rows];
    for (int64_t row = 0; row < t->rows; row++) moved = moved || t->parents[row] != row;
    if (!moved) return OK;
    Shape rows = shape2(count, tensor_count(t->cache.k) / count);
    TRY(upload(ctx, t->gathered, t->ids, count));
    Tensor from = i32_view(t->gathered, shape1(count));
    TRY(gather(ctx, tensor_reshape(t->cache.k, rows), from, tensor_reshape(t->spare_k, rows)));
    TRY(gather(ctx, tensor_reshape(t->cache.v, rows), from, tensor_reshape(t->spare_v, rows)));
    swap(&t->cache.k, &t->spare_k);
    swap(&t->cache.v, &t->spare_v);
    return OK;
}

/* ---- memory ---- */

static Status take_all(Ctx *ctx, Translator *t) {
    const TranslateOptions *o = &t->options;
    int64_t layers = t->model->config.layers;
    TRY(take(ctx, ARENA_SAVED, "sources", I32, shape2(o->sentences, o->source), &t->source));
    TRY(take(ctx, ARENA_SAVED, "source lengths", I32, shape1(t->rows), &t->source_lengths));
    TRY(take(ctx, ARENA_SAVED, "sentences of rows", I32, shape1(t->rows), &t->repeated));
    TRY(take(ctx, ARENA_SAVED, "translations", I32, shape2(t->rows, o->most), &t->tokens));
    TRY(take(ctx, ARENA_SAVED, "gathered rows", I32, shape1(layers * t->rows), &t->gathered));
    Shape logits = shape2(logit_rows(t, o->most), padded_vocab(t));
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), logits, &t->logits));
    if (!caches(t)) return OK;
    int64_t source = o->decoding == DECODING_CACHED ? o->source : 0;
    TRY(transformer_take_cache(ctx, t->model, t->rows, o->most, source, &t->cache));
    t->cache_memory = t->cache.memory;
    if (o->beam == 1) return OK; /* with one row per sentence nothing moves */
    TRY(take(ctx, ARENA_CACHE, "cache.spare keys", ctx->dtype, t->cache.k.shape, &t->spare_k));
    return take(ctx, ARENA_CACHE, "cache.spare values", ctx->dtype, t->cache.v.shape, &t->spare_v);
}

Status translator_take(Ctx *ctx, Translator *t) {
    const TranslateOptions *o = &t->options;
    Tensor memory;
    TRY(take_all(ctx, t));
    if (!ctx->measuring) return OK;
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    TRY(encode(ctx, t, o->source, &memory));
    if (o->decoding == DECODING_CACHED)
        TRY(transformer_cache_memory(ctx, t->model, memory, t->source_lengths, &t->cache));
    if (caches(t)) {
        t->cache.length = o->most - 1; /* the last step */
        TRY(decode(ctx, t, 1, memory));
        t->cache.length = 0;
    } else {
        TRY(decode(ctx, t, o->most, memory));
    }
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

/* ---- a batch ---- */

/* Missing sentences have the length of an end token. Returns the longest length. */
static int64_t longest(const Sentence *sentences, int64_t count) {
    int64_t most = 1;
    for (int64_t s = 0; s < count; s++) most = sentences[s].count > most ? sentences[s].count : most;
    return most;
}

static Status upload_sources(Ctx *ctx, Translator *t, const Sentence *sentences, int64_t count, int64_t S) {
    int64_t N = t->options.sentences;
    for (int64_t i = 0; i < N * S; i++)
        t->ids[i] = t->options.end; /* the content of padding does not matter */
    for (int64_t s = 0; s < count; s++)
        memcpy(t->ids + s * S, sentences[s].ids, (size_t)sentences[s].count * sizeof *t->ids);
    TRY(upload(ctx, t->source, t->ids, N * S));
    for (int64_t s = 0; s < N; s++) t->ids[s] = s < count ? (int32_t)sentences[s].count : 1;
    TRY(upload(ctx, t->source_lengths, t->ids, N));
    for (int64_t row = 0; row < t->rows; row++) t->next[row] = (int32_t)(row / t->options.beam);
    return upload(ctx, t->repeated, t->next, t->rows);
}

/* From now on lengths are per row: each row has its sentence's. */
static Status upload_row_lengths(Ctx *ctx, Translator *t, const Sentence *sentences, int64_t count) {
    for (int64_t row = 0; row < t->rows; row++) {
        int64_t s = row / t->options.beam;
        t->ids[row] = s < count ? (int32_t)sentences[s].count : 1;
    }
    return upload(ctx, t->source_lengths, t->ids, t->rows);
}

/* Uploads the tokens of a step: the last of each row, or all; returns their number per row. */
static Status upload_tokens(Ctx *ctx, Translator *t, int64_t *T) {
    int64_t stride, length = beams_length(t->beams), first = caches(t) ? length - 1 : 0;
    const int32_t *rows = beams_rows(t->beams, &stride);
    *T = length - first;
    for (int64_t row = 0; row < t->rows; row++)
        memcpy(t->ids + row * *T, rows + row * stride + first, (size_t)*T * sizeof *t->ids);
    TRY(upload(ctx, t->tokens, t->ids, t->rows * *T));
    if (*T == 1) return OK;
    for (int64_t row = 0; row < t->rows; row++) t->ids[row] = (int32_t)((row + 1) * *T - 1);
    return upload(ctx, t->gathered, t->ids, t->rows);
}

static Status step(Ctx *ctx, Translator *t) {
    int64_t T;
    TRY(upload_tokens(ctx, t, &T));
    TRY(decode(ctx, t, T, t->memory));
    int64_t width = padded_vocab(t),
            per_row = logit_rows(t, T) / t->rows; /* the last of the rows that are computed */
    if (per_row == 1) TRY(values_read(ctx, t->logits, 0, t->rows * width, t->values));
    for (int64_t row = 0; per_row > 1 && row < t->rows; row++)
        TRY(values_read(ctx, t->logits, ((row + 1) * per_row - 1) * width, width, t->values + row * width));
    HOST_SCOPE(ctx, "search")
    TRY(beams_advance(t->beams, t->values, padded_vocab(t), t->next, t->parents));
    t->steps++;
    return caches(t) && t->options.beam > 1 ? move_cache(ctx, t) : OK;
}

static Status read_sources(Ctx *ctx, Translator *t, const Sentence *sentences, int64_t count) {
    int64_t S = longest(sentences, count);
    TRY(upload_sources(ctx, t, sentences, count, S));
    TRY(encode(ctx, t, S, &t->memory));
    TRY(upload_row_lengths(ctx, t, sentences, count));
    t->cache.length = 0;
    t->cache.memory = t->cache_memory;
    if (t->options.decoding != DECODING_CACHED) return OK;
    return transformer_cache_memory(ctx, t->model, t->memory, t->source_lengths, &t->cache);
}

Status translator_begin(Ctx *ctx, Translator *t, const Sentence *sentences, int64_t count) {
    assert(count >= 1 && count <= t->options.sentences);
    t->before = arena_mark(&ctx->arenas[ARENA_SAVED]);
    PART_SCOPE(ctx, "encode") TRY(read_sources(ctx, t, sentences, count));
    beams_start(t->beams);
    t->steps = 0;
    return OK;
}

Status translator_step(Ctx *ctx, Translator *t) {
    PART_SCOPE(ctx, "decoding step") TRY(step(ctx, t));
    return OK;
}

bool translator_done(const Translator *t) {
    return beams_done(t->beams);
}

void translator_end(Ctx *ctx, Translator *t) {
    arena_release(&ctx->arenas[ARENA_SAVED], t->before);
}

Status translator_run(Ctx *ctx, Translator *t, const Sentence *sentences, int64_t count) {
    TRY(translator_begin(ctx, t, sentences, count));
    while (!translator_done(t)) TRY(translator_step(ctx, t));
    translator_end(ctx, t);
    return OK;
}

const int32_t *translator_best(const Translator *t, int64_t sentence, int64_t *length, double *score) {
    return beams_best(t->beams, sentence, length, score);
}
