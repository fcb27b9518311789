#include "tasks/text/stream_text.h"

#include "base/memory.h"
#include "base/options.h"
#include "data/text_stream.h"
#include "data/end_tokens.h"

#include <string.h>

/* Text that is held back because it could be the beginning of a stop text. */
typedef struct {
    TextSink sink;
    void *context;
    const char *stops; // separated by OPTION_SEPARATOR
    char *held;        // (room)
    int64_t count, room;
    bool stopped;
} Gate;

static void gate_close(Gate *gate) {
    memory_free(gate->held);
}

/* Whether these bytes begin with a stop text, or with its beginning if they are shorter. */
static bool begins_stop(const char *stops, const char *bytes, int64_t count, bool *whole) {
    for (const char *stop = stops; *stop; stop += *stop == OPTION_SEPARATOR) {
        int64_t length = (int64_t)strcspn(stop, (const char[]){OPTION_SEPARATOR, 0});
        int64_t compared = count < length ? count : length;
        if (length && memcmp(bytes, stop, (size_t)compared) == 0) {
            *whole = compared == length;
            return true;
        }
        stop += length;
    }
    return false;
}

static Status gate_add(Gate *g, const uint8_t *bytes, int64_t count) {
    g->held = memory_grow(g->held, &g->room, g->count + count, 1);
    memcpy(g->held + g->count, bytes, (size_t)count);
    g->count += count;

    int64_t free_to_go = 0;
    while (free_to_go < g->count &&
           !begins_stop(g->stops, g->held + free_to_go, g->count - free_to_go, &g->stopped))
        free_to_go++;
    TRY(g->sink(g->context, g->held, free_to_go));
    memmove(g->held, g->held + free_to_go, (size_t)(g->count - free_to_go));
    g->count -= free_to_go;
    return OK;
}

Status stream_text_prompt(Tokenizer *tokenizer, const TextOptions *o, TokenList *prompt) {
    const TokenList *before = o->ids ? o->ids : tokenizer_before(tokenizer);
    for (int64_t i = 0; i < before->count; i++) token_list_add(prompt, before->ids[i]);
    if (o->ids) return OK;
    if (o->prompt_length) return tokenizer_encode(tokenizer, o->prompt, o->prompt_length, prompt);
    if (prompt->count) return OK;
    int32_t end = tokenizer_end_of_text(tokenizer);
    if (end < 0) return tokenizer_encode(tokenizer, "\n", 1, prompt);
    token_list_add(prompt, end);
    return OK;
}

Status stream_text_window(Tokenizer *tokenizer, const TextOptions *o, const Config *config, int64_t *window) {
    CLOSED_BY(token_list_free) TokenList prompt = {0};
    TRY(stream_text_prompt(tokenizer, o, &prompt));
    *window = prompt.count + o->tokens < config->context ? prompt.count + o->tokens : config->context;
    return OK;
}

typedef struct {
    Generator *generator;
    Sampler *sampler;
    int32_t token; // the latest token
    Bytes text;    // the text that this token has completed
} Drawing;

static void drawing_close(Drawing *d) {
    sampler_close(d->sampler);
    memory_free(d->text.bytes);
}

static Status draw_token(Ctx *ctx, void *program, StepCost *cost) {
    Drawing *d = program;
    (void)cost;
    STEP_SCOPE(ctx) TRY(generator_next(ctx, d->generator, d->sampler, &d->token));
    return OK;
}

static bool ends_text(const Generator *generator, const Tokenizer *tokenizer, int32_t token) {
    const EndTokens *ends = &generator->model->config.ends;
    return ends->count ? end_tokens_hold(ends, token) : token == tokenizer_end_of_text(tokenizer);
}

/* Passes on the text that a token has completed. */
static Status gate_take(Gate *gate, Bytes *text) {
    Status status = text->count ? gate_add(gate, text->bytes, text->count) : OK;
    text->count = 0;
    return status;
}

static Status write_tokens(Ctx *ctx, Drawing *drawing, Tokenizer *tokenizer, const TextOptions *o, Gate *gate,
                           TextStats *stats) {
    Bytes *text = &drawing->text;
    TextStream stream = {.begun = o->prompt_length > 0};
    double start = device_clock(), prefilled = start;
    for (int64_t i = 0; i < o->tokens && !gate->stopped; i++) {
        TRY(i && o->profiling ? profiling_step(o->profiling, ctx, i, draw_token, drawing, NULL)
                              : generator_next(ctx, drawing->generator, drawing->sampler, &drawing->token));
        if (i == 0) prefilled = device_clock();
        int32_t token = drawing->token;
        if (ends_text(drawing->generator, tokenizer, token) || (o->end && token == *o->end)) {
            stats->stopped = true;
            break;
        }
        stats->tokens++;
        tokenizer_stream(tokenizer, &stream, token, text);
        TRY(gate_take(gate, text));
    }
    tokenizer_stream_end(&stream, text);
    if (!gate->stopped) TRY(gate_take(gate, text));
    stats->prefill_seconds = prefilled - start;
    stats->decode_seconds = device_clock() - prefilled;
    stats->stopped = stats->stopped || gate->stopped;
    return gate->stopped ? OK : gate->sink(gate->context, gate->held, gate->count);
}

Status stream_text(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *o, TextSink sink,
                   void *context, TextStats *stats) {
    CLOSED_BY(gate_close) Gate gate = {.sink = sink, .context = context, .stops = o->stop};
    CLOSED_BY(drawing_close) Drawing drawing = {.generator = generator};
    CLOSED_BY(token_list_free) TokenList prompt = {0};
    *stats = (TextStats){0};
    TRY(stream_text_prompt(tokenizer, o, &prompt));
    TRY(sampler_open(generator->model->config.vocab, &o->sampler, &drawing.sampler));
    TRY(generator_start(generator, prompt.ids, prompt.count));
    stats->prompt_tokens = generator->length;
    stats->left_out = prompt.count - generator->length;
    TRY(generator_prepare(ctx, generator, drawing.sampler));
    return write_tokens(ctx, &drawing, tokenizer, o, &gate, stats);
}

/* ---- into memory ---- */

typedef struct {
    char *text;
    int64_t length, room;
} Collected;

static Status collect(void *context, const void *bytes, int64_t count) {
    Collected *c = context;
    c->text = memory_grow(c->text, &c->room, c->length + count, 1);
    if (count) memcpy(c->text + c->length, bytes, (size_t)count);
    c->length += count;
    return OK;
}

Status stream_text_collect(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                           char **text, int64_t *length) {
    Collected collected = {0};
    TextStats stats;
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    Status status = generator_take(ctx, generator);
    if (!status) status = stream_text(ctx, generator, tokenizer, options, collect, &collected, &stats);
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    if (status) memory_free(collected.text);
    *text = status ? NULL : collected.text;
    *length = status ? 0 : collected.length;
    return status;
}
