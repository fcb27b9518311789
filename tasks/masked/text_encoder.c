#include "tasks/masked/text_encoder.h"

#include "kernels/gather/gather.h"

#include <assert.h>

Status text_encoder_open(TextEncoder *e, const Session *session) {
    *e = (TextEncoder){0};
    return runner_open(session, &e->ctx, &e->model);
}

void text_encoder_close(TextEncoder *e) {
    transformer_close(&e->model);
    if (e->ctx.device) ctx_close(&e->ctx);
}

static Status forward(TextEncoder *e, int64_t batch, int64_t seq) {
    Ctx *ctx = &e->ctx;
    int64_t C = e->model.config.width;
    const DeviceBatch inputs = {.tokens = tensor_view(e->tokens.data, I32, shape2(batch, seq)),
                                .lengths = tensor_view(e->lengths.data, I32, shape1(batch))};
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    TRY(transformer_forward(ctx, &e->model, &inputs, NULL));
    Tensor hidden = e->model.hidden;
    if (e->pooled)
        TRY(transformer_pool(ctx, &e->model, hidden,
                             tensor_view(e->pool.data, ctx->dtype, shape2(batch, C))));
    if (e->logits) {
        GatherForward g = {
            .x = tensor_reshape(hidden, shape2(batch * seq, C)), .rows = e->rows, .y = e->chosen};
        TRY(gather_forward(ctx, &g, ARENA_SCRATCH));
        TRY(transformer_logits(ctx, &e->model, e->chosen, e->output));
    }
    arena_release(&ctx->arenas[ARENA_SAVED], mark); /* the memory stays valid until the next allocation */
    return OK;
}

static Status rehearse(Ctx *ctx, void *program) {
    TextEncoder *e = program;
    const Config *c = &e->model.config;
    TRY(transformer_take(ctx, &e->model, false));
    TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(e->batch, e->seq), &e->tokens));
    TRY(take(ctx, ARENA_SAVED, "lengths", I32, shape1(e->batch), &e->lengths));
    if (e->pooled) TRY(take(ctx, ARENA_SAVED, "pooled", ctx->dtype, shape2(e->batch, c->width), &e->pool));
    if (e->logits) {
        Shape shape = shape2(e->logits, config_padded_vocab(c));
        TRY(take(ctx, ARENA_SAVED, "rows", I32, shape1(e->logits), &e->rows));
        TRY(take(ctx, ARENA_SAVED, "chosen", ctx->dtype, shape2(e->logits, c->width), &e->chosen));
        TRY(take(ctx, ARENA_SAVED, "logits", ctx->dtype, shape, &e->output));
    }
    return ctx->measuring ? forward(e, e->batch, e->seq) : OK;
}

Status text_encoder_start(TextEncoder *e, const Session *session, int64_t seed) {
    return runner_start(&(Runner){session, &e->ctx, &e->model, rehearse, e, false, seed, NULL});
}

Status text_encoder_run(TextEncoder *e, const int32_t *tokens, const int32_t *lengths, int64_t batch,
                        int64_t seq, const int32_t *rows) {
    Device *device = e->ctx.device;
    assert(batch <= e->batch && seq <= e->seq);
    TRY(device->upload(device, e->tokens.data, tokens, (size_t)(batch * seq) * sizeof *tokens));
    TRY(device->upload(device, e->lengths.data, lengths, (size_t)batch * sizeof *lengths));
    if (e->logits) TRY(device->upload(device, e->rows.data, rows, (size_t)e->logits * sizeof *rows));
    return forward(e, batch, seq);
}
