#include "model/generate.h"

#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

Status generator_open(Transformer *model, bool cached, Generator *g) {
    *g = (Generator){.model = model,
                     .cached = cached,
                     .history = memory_array((size_t)model->config.context, sizeof *g->history),
                     .row = memory_array((size_t)config_padded_vocab(&model->config), sizeof *g->row)};
    if (g->history && g->row) return OK;
    generator_close(g);
    return fail(ERROR_MEMORY, "out of host memory to generate");
}

void generator_close(Generator *g) {
    memory_free(g->history);
    memory_free(g->row);
    *g = (Generator){0};
}

static Tensor tokens_view(const Generator *g, int64_t count) {
    return tensor_view(g->tokens.data, I32, shape2(1, count));
}

/* A forward pass over `count` tokens that lie in g->tokens, and the logits of the last. */
static Status run(Ctx *ctx, Generator *g, int64_t count) {
    bool training = ctx->training;
    Arena *saved = &ctx->arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    ctx->training = false;
    TRY(transformer_forward(ctx, g->model, tokens_view(g, count), g->cached ? &g->cache : NULL));
    Tensor hidden = g->model->hidden;
    int64_t C = tensor_width(hidden);
    size_t before = (size_t)((count - 1) * C) * dtype_size(hidden.dtype);
    Tensor last = tensor_view((void *)((uintptr_t)hidden.data + before), hidden.dtype, shape2(1, C));
    TRY(transformer_logits(ctx, g->model, last, g->logits));
    arena_release(saved, mark);
    ctx->training = training;
    return OK;
}

Status generator_take(Ctx *ctx, Generator *g) {
    const Config *c = &g->model->config;
    TRY(take(ctx, ARENA_SAVED, "generated tokens", I32, shape2(1, c->context), &g->tokens));
    TRY(take(ctx, ARENA_SAVED, "logits", wide_dtype(ctx), shape2(1, config_padded_vocab(c)), &g->logits));
    if (g->cached) TRY(transformer_take_cache(ctx, g->model, 1, c->context, &g->cache));
    if (!ctx->measuring) return OK;
    TRY(run(ctx, g, c->context)); // the longest prefill
    if (!g->cached) return OK;
    g->cache.length = c->context - 1; // the last step of decoding
    TRY(run(ctx, g, 1));
    g->cache.length = 0;
    return OK;
}

Status generator_start(Generator *g, const int32_t *tokens, int64_t count) {
    int64_t context = g->model->config.context;
    if (count < 1) return fail(ERROR_USAGE, "the prompt is empty; give at least one token to go on from");
    if (count > context) {
        tokens += count - context;
        count = context;
    }
    memcpy(g->history, tokens, (size_t)count * sizeof *tokens);
    g->length = count;
    g->fed = g->cache.length = 0;
    return OK;
}

Status generator_logits(Ctx *ctx, Generator *g, const float **logits) {
    int64_t first = g->cached ? g->fed : 0, count = g->length - first;
    if (count < 1) return fail(ERROR_INTERNAL, "logits were asked for twice without a new token");
    TRY(ctx->device->upload(ctx->device, g->tokens.data, g->history + first,
                            (size_t)count * sizeof *g->history));
    TRY(run(ctx, g, count));
    g->fed = g->length;
    TRY(values_read(ctx, g->logits, 0, g->model->config.vocab, g->row));
    *logits = g->row;
    return OK;
}

Status generator_add(Generator *g, int32_t token) {
    int64_t context = g->model->config.context;
    if (token < 0 || token >= g->model->config.vocab)
        return fail(ERROR_INTERNAL, "token %" PRId32 " is outside the vocabulary", token);
    if (g->length == context) {
        int64_t kept = context / 2;
        memmove(g->history, g->history + context - kept, (size_t)kept * sizeof *g->history);
        g->length = kept;
        g->fed = g->cache.length = 0;
    }
    g->history[g->length++] = token;
    return OK;
}
