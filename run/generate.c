#include "run/generate.h"

#include "base/checked.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static Status open_drawing(Generator *g) {
    size_t context = (size_t)g->model->config.context;
    void *sampled;
    TRY(g->device->pinned(g->device, context * sizeof *g->sampled, &sampled));
    g->sampled = sampled;
    TRY(g->device->event_create(g->device, &g->drawn[0]));
    return g->device->event_create(g->device, &g->drawn[1]);
}

Status generator_open(Device *device, Transformer *model, bool cached, Generator *g) {
    size_t context = (size_t)model->config.context;
    *g = (Generator){.model = model,
                     .cached = cached,
                     .window = model->config.context,
                     .rows = 1,
                     .device = device,
                     .history = memory_array(context, sizeof *g->history),
                     .row = memory_array((size_t)config_padded_vocab(&model->config), sizeof *g->row),
                     .numbers = memory_array(context, sizeof *g->numbers)};
    Status status = open_drawing(g);
    if (status) generator_close(g);
    return status;
}

void generator_close(Generator *g) {
    memory_free(g->history);
    memory_free(g->row);
    memory_free(g->numbers);
    if (g->device) {
        replay_close(g->device, &g->step);
        replay_close(g->device, &g->stride);
        if (g->sampled) g->device->release_pinned(g->device, g->sampled);
        for (int i = 0; i < 2; i++)
            if (g->drawn[i]) g->device->event_free(g->device, g->drawn[i]);
    }
    *g = (Generator){0};
}

static Tensor tokens_view(const Generator *g, int64_t count) {
    return tensor_view(g->tokens.data, I32, shape2(1, count));
}

/* Computes the logits after the last g->rows of `count` tokens in g->tokens. */
static Status run_stack(Ctx *ctx, Generator *g, int64_t count, Cache *cache) {
    if (count == 1 && g->cached)
        return transformer_decode(ctx, g->model, tensor_view(g->tokens.data, I32, shape1(1)), cache,
                                  tensor_elements(g->logits, 0, shape2(1, tensor_width(g->logits))));
    const DeviceBatch inputs = {.tokens = tokens_view(g, count)};
    TRY(transformer_forward(ctx, g->model, &inputs, g->cached ? cache : NULL));
    Tensor hidden = g->model->hidden;
    int64_t C = tensor_width(hidden);
    Tensor last = tensor_elements(hidden, (count - g->rows) * C, shape2(g->rows, C));
    Tensor logits = tensor_elements(g->logits, 0, shape2(g->rows, tensor_width(g->logits)));
    return transformer_logits(ctx, g->model, last, logits);
}

/* The most tokens per pass. */
static int64_t pass_most(const Generator *g) {
    return g->cached && g->window > PREFILL ? PREFILL : g->window;
}

/* The same, releasing all memory afterwards. */
static Status run(Ctx *ctx, Generator *g, int64_t count, Cache *cache) {
    bool training = ctx->training;
    Arena *saved = &ctx->arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    ctx->training = false;
    TRY(run_stack(ctx, g, count, cache));
    arena_release(saved, mark);
    ctx->training = training;
    return OK;
}

/* Computes the logits after the text and after each proposal: reads the tokens that the cache lacks, or
 * without a cache all of them. */
static Status read_text(Ctx *ctx, Generator *g) {
    const int64_t end = g->length + g->rows - 1;
    for (int64_t first = g->cache.length, count; first < end; first += count) {
        count = least(end - first, pass_most(g));
        TRY(ctx->device->upload(ctx->device, g->tokens.data, g->history + first,
                                (size_t)count * sizeof *g->history));
        TRY(run(ctx, g, count, &g->cache));
    }
    return OK;
}

/* ---- drawing on the device ---- */

static bool draws_on_device(const Ctx *ctx, const Generator *g, const Sampler *sampler) {
    return sample_cuda && g->cached && !g->draft && !sampler_penalizes(sampler) && replay_allowed(ctx) &&
           ctx->device->backend == BACKEND_CUDA && g->model->config.head_size <= ATTENTION_WIDTH;
}

static Status draw(Ctx *ctx, Generator *g, SampleRule rule) {
    Sample sample = {.rule = rule,
                     .logits = g->logits,
                     .vocab = g->model->config.vocab,
                     .uniforms = g->uniforms,
                     .position = g->position,
                     .token = tensor_view(g->tokens.data, I32, shape1(1)),
                     .sampled = g->sampled};
    return sample_cuda(ctx, &sample);
}

typedef struct {
    Generator *generator;
    SampleRule rule;
    double terms[REPLAY_TERMS];
    int64_t count; // steps
} Steps;

static Steps steps_of(Generator *g, const Sampler *sampler, int64_t count) {
    Steps s = {.generator = g, .rule = sampler_rule(sampler), .count = count};
    sample_rule_terms(&s.rule, s.terms);
    s.terms[SAMPLE_TERMS] = tensor_empty(g->cache.memory) ? 0 : (double)g->cache.memory.shape.d[2];
    return s;
}

/* Steps from the last sampled token to the next ones. They can be captured, so the device advances the
 * position. On the host the position stays at the window's last step, the longest. */
static Status steps_work(Ctx *ctx, void *program) {
    const Steps *s = program;
    Generator *g = s->generator;
    for (int64_t i = 0; i < s->count; i++) {
        Cache cache = g->cache;
        cache.length = g->window - 1;
        cache.length_on_device = g->position;
        scope_begin_phase(ctx, PHASE_FORWARD);
        TRY(run(ctx, g, 1, &cache));
        TRY(draw(ctx, g, s->rule));
        scope_end(ctx);
    }
    return OK;
}

/* `count`: 1, or STRIDE, whose graph is captured at once, because single steps have run before. */
static Status run_steps(Ctx *ctx, Generator *g, const Sampler *sampler, int64_t count) {
    Steps s = steps_of(g, sampler, count);
    return count == 1 ? replay_run(ctx, &g->step, s.terms, steps_work, &s)
                      : replay_run_captured(ctx, &g->stride, s.terms, steps_work, &s);
}

static bool has_stride(const Ctx *ctx, Generator *g, const Sampler *sampler) {
    return !ctx->recorder && replay_captured(ctx, &g->stride, steps_of(g, sampler, STRIDE).terms);
}

Status generator_prepare(Ctx *ctx, Generator *g, const Sampler *sampler) {
    enum { RUNS = 3 }; // of a step, of which the last is captured
    const int32_t zero = 0;
    const double zeros[RUNS + STRIDE] = {0};
    if (!draws_on_device(ctx, g, sampler) || ctx->recorder || g->source || g->window < RUNS + STRIDE)
        return OK;
    if (has_stride(ctx, g, sampler)) return OK;
    TRY(ctx->device->upload(ctx->device, g->uniforms.data, zeros, sizeof zeros));
    TRY(ctx->device->upload(ctx->device, g->position.data, &zero, sizeof zero));
    TRY(ctx->device->upload(ctx->device, g->tokens.data, &zero, sizeof zero));
    for (int i = 0; i < RUNS; i++) TRY(run_steps(ctx, g, sampler, 1));
    return run_steps(ctx, g, sampler, STRIDE);
}

/* Uploads the window's tokens that the cache lacks, and the random numbers of its positions. */
static Status begin_window(Ctx *ctx, Generator *g, const Sampler *sampler) {
    Device *device = ctx->device;
    int64_t window = g->window, first = g->length - 1;
    int32_t position = (int32_t)first;
    for (int64_t i = first; i < window; i++) g->numbers[i] = sampler_uniform(sampler, g->draws + i - first);
    TRY(device->upload(device, g->uniforms.data, g->numbers, (size_t)window * sizeof *g->numbers));
    TRY(device->upload(device, g->position.data, &position, sizeof position));
    TRY(read_text(ctx, g));
    return draw(ctx, g, sampler_rule(sampler));
}

/* Enqueues the sampling of one more token or of several. */
static Status launch_draw(Ctx *ctx, Generator *g, const Sampler *sampler) {
    g->latest = !g->latest;
    if (!g->launched) {
        TRY(begin_window(ctx, g, sampler));
        g->first[0] = g->first[1] = g->length - 1;
        g->launched = g->length;
    } else {
        const bool many = g->window - g->launched >= STRIDE && has_stride(ctx, g, sampler);
        const int64_t count = many ? STRIDE : 1;
        TRY(run_steps(ctx, g, sampler, count));
        g->first[g->latest] = g->launched;
        g->launched += count;
    }
    return ctx->device->event_record(ctx->device, g->drawn[g->latest]);
}

/* The device computes the next tokens while the host processes the current one; in a profile steps do not
 * overlap. */
static Status next_on_device(Ctx *ctx, Generator *g, const Sampler *sampler, int32_t *token) {
    const int64_t position = g->length - 1;
    while (g->launched <= position) TRY(launch_draw(ctx, g, sampler));
    if (!ctx->recorder && g->launched < g->window && position >= g->first[g->latest])
        TRY(launch_draw(ctx, g, sampler));
    const int launch = position >= g->first[g->latest] ? g->latest : !g->latest;
    TRY(ctx->device->event_wait(ctx->device, g->drawn[launch]));
    *token = g->sampled[position];
    g->cache.length = g->length;
    if (*token >= 0) return OK;
    return fail(ERROR_NONFINITE,
                "a logit at position %" PRId64 " is infinite or not a number, or all are -inf", g->draws);
}

/* ---- the source of an encoder-decoder ---- */

static Status encode(Ctx *ctx, Generator *g, int64_t count) {
    bool training = ctx->training;
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    ctx->training = false;
    Tensor tokens = tensor_view(g->source_tokens.data, I32, shape2(1, count));
    TRY(transformer_encode(ctx, g->model, tokens, (Tensor){0}));
    g->cache.memory = g->cache_memory;
    TRY(transformer_cache_memory(ctx, g->model, g->model->memory, (Tensor){0}, &g->cache));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    ctx->training = training;
    return OK;
}

static Status take_source(Ctx *ctx, Generator *g) {
    if (!g->source) return OK;
    TRY(take(ctx, ARENA_SAVED, "source", I32, shape2(1, g->source), &g->source_tokens));
    g->cache_memory = g->cache.memory;
    return ctx->measuring ? encode(ctx, g, g->source) : OK;
}

Status generator_read_source(Ctx *ctx, Generator *g, const int32_t *tokens, int64_t count) {
    if (count < 1 || count > g->source)
        return fail(ERROR_INTERNAL, "the source has %" PRId64 " tokens, but the plan is for 1 to %" PRId64,
                    count, g->source);
    TRY(ctx->device->upload(ctx->device, g->source_tokens.data, tokens, (size_t)count * sizeof *tokens));
    return encode(ctx, g, count);
}

/* ---- proposals ---- */

/* Keeps only the first `length` tokens in the caches, and no proposals. */
static void cut(Generator *g, int64_t length) {
    g->cache.length = least(g->cache.length, length);
    if (g->draft) g->draft->cache.length = least(g->draft->cache.length, length);
    g->rows = 1;
    g->pending = 0;
}

/* The draft's table may have another number of rows than the model's (tasks/text/draft.c): tokens that only
 * the model has get no probability. */
static void widen_draft(const Generator *g) {
    const int64_t own = g->draft->model->config.vocab, vocab = g->model->config.vocab;
    if (own >= vocab) return;
    g->draft->row = memory_resize(g->draft->row, (size_t)vocab * sizeof *g->draft->row);
    for (int64_t i = own; i < vocab; i++) g->draft->row[i] = -INFINITY;
}

/* Whether a draft can read the text's tokens from `first` on. */
static bool draft_reads(const Generator *g, int64_t first) {
    for (int64_t i = first; i < g->length; i++)
        if (g->history[i] >= g->draft->model->config.vocab) return false;
    return true;
}

/* The draft continues the text with the random numbers of this generator. It proposes tokens only if the
 * cache lacks no more than the last one, because a pass over more rows has other bits. */
static Status propose(Generator *g, Sampler *sampler) {
    Generator *d = g->draft;
    if (!d || g->length - g->cache.length != 1) return OK;
    const int64_t count = least(PROPOSALS, least(g->window, d->window) - g->length), known = d->cache.length;
    if (count < 1 || !draft_reads(g, known)) return OK;
    memcpy(d->history + known, g->history + known, (size_t)(g->length - known) * sizeof *d->history);
    d->length = g->length;
    d->draws = g->draws;
    d->launched = 0;
    int64_t proposed = 0;
    for (int32_t token; proposed < count; proposed++) {
        TRY(generator_next(g->draft_ctx, d, sampler, &token));
        if (token >= g->model->config.vocab) break; // drawn on a GPU: only the draft's table has it
        g->history[g->length + proposed] = token;
    }
    g->rows += proposed;
    g->proposed += proposed;
    return OK;
}

/* Compares the sampled token with the next proposal. After a difference the other proposals are dropped. */
static void verify(Generator *g, int32_t token) {
    if (!g->pending) return;
    if (token == g->history[g->length])
        g->accepted++;
    else
        cut(g, g->length);
}

static Status rehearse_verification(Ctx *ctx, Generator *g, int64_t rows) {
    g->cache.length = g->window - rows;
    g->rows = rows;
    TRY(run(ctx, g, rows, &g->cache));
    g->rows = 1;
    return OK;
}

/* ---- the generator ---- */

Status generator_take(Ctx *ctx, Generator *g) {
    const Config *c = &g->model->config;
    TRY(take(ctx, ARENA_SAVED, "generated tokens", I32, shape2(1, pass_most(g)), &g->tokens));
    if (g->draft) widen_draft(g);
    const int64_t rows = !g->draft ? 1 : g->window > PROPOSALS ? 1 + PROPOSALS : g->window;
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), shape2(rows, config_padded_vocab(c)), &g->logits));
    TRY(take(ctx, ARENA_SAVED, "position", I32, shape1(1), &g->position));
    TRY(take(ctx, ARENA_SAVED, "random numbers", F64, shape1(g->window), &g->uniforms));
    if (g->cached) TRY(transformer_take_cache(ctx, g->model, 1, g->window, g->source, &g->cache));
    TRY(take_source(ctx, g));
    if (!ctx->measuring) return OK;
    if (g->cached) g->cache.length = g->window - pass_most(g);
    TRY(run(ctx, g, pass_most(g), &g->cache)); // the longest prefill
    if (!g->cached) return OK;
    g->cache.length = g->window - 1; // the last step of decoding
    TRY(run(ctx, g, 1, &g->cache));
    if (g->draft) TRY(rehearse_verification(ctx, g, rows));
    g->cache.length = 0;
    return sample_cuda && ctx->device->backend == BACKEND_CUDA ? draw(ctx, g, (SampleRule){0}) : OK;
}

Status generator_start(Generator *g, const int32_t *tokens, int64_t count) {
    if (count < 1) return fail(ERROR_USAGE, "the prompt is empty; give at least one token to continue");
    if (count > g->window) {
        tokens += count - g->window;
        count = g->window;
    }
    memcpy(g->history, tokens, (size_t)count * sizeof *tokens);
    g->length = count;
    g->launched = g->draws = g->proposed = g->accepted = 0;
    cut(g, 0);
    return OK;
}

Status generator_append(Generator *g, const int32_t *tokens, int64_t count) {
    if (count > g->window - g->length)
        return fail(ERROR_INTERNAL,
                    "%" PRId64 " tokens do not fit behind %" PRId64 " of a window of %" PRId64, count,
                    g->length, g->window);
    if (g->pending) cut(g, g->length - 1); // the last token is read again, as if there had been no proposals
    memcpy(g->history + g->length, tokens, (size_t)count * sizeof *tokens);
    g->length += count;
    g->launched = 0;
    return OK;
}

void generator_forget(Generator *g, int64_t first, int64_t count) {
    int32_t *gap = g->history + first;
    g->length -= count;
    memmove(gap, gap + count, (size_t)(g->length - first) * sizeof *gap);
    cut(g, first);
    g->launched = 0;
}

Status generator_logits(Ctx *ctx, Generator *g, const float **logits) {
    if (!g->pending && g->length <= g->cache.length)
        return fail(ERROR_INTERNAL, "logits were asked for twice without a new token");
    scope_begin_phase(ctx, PHASE_FORWARD);
    if (!g->pending) {
        TRY(read_text(ctx, g));
        g->pending = g->rows;
    }
    const int64_t row = g->rows - g->pending;
    TRY(values_read(ctx, g->logits, row * tensor_width(g->logits), g->model->config.vocab, g->row));
    if (!--g->pending) g->rows = 1;
    scope_end(ctx);
    *logits = g->row;
    return OK;
}

static Status add_token(Generator *g, int32_t token) {
    if (token < 0 || token >= g->model->config.vocab)
        return fail(ERROR_INTERNAL, "token %" PRId32 " is outside the vocabulary", token);
    if (g->length == g->window) generator_forget(g, 0, g->length - g->window / 2);
    g->history[g->length++] = token;
    return OK;
}

Status generator_next(Ctx *ctx, Generator *g, Sampler *sampler, int32_t *token) {
    if (draws_on_device(ctx, g, sampler)) {
        TRY(next_on_device(ctx, g, sampler, token));
    } else {
        const float *logits;
        if (!g->pending) TRY(propose(g, sampler));
        TRY(generator_logits(ctx, g, &logits));
        if (sampler_penalizes(sampler)) sampler_penalize(sampler, g->history, g->length, g->row);
        HOST_SCOPE(ctx, "sample") TRY(sampler_next(sampler, logits, g->draws, token));
        verify(g, *token);
    }
    g->draws++;
    return add_token(g, *token);
}
