#include "run/inference.h"

#include <assert.h>

Status inference_open(Inference *in, const Session *session, bool cached) {
    *in = (Inference){0};
    TRY(runner_open(session, &in->ctx, &in->model));
    return generator_open(session->device, &in->model, cached, &in->generator);
}

void inference_close(Inference *in) {
    replay_close(in->ctx.device, &in->replay);
    generator_close(&in->generator);
    transformer_close(&in->model);
    if (in->ctx.device) ctx_close(&in->ctx);
}

/* A pass of one size. */
typedef struct {
    Inference *inference;
    Shape shape; // (batch, seq)
} PassSize;

/* The device's part of a pass, which can be captured. */
static Status pass_work(Ctx *ctx, void *program) {
    const PassSize *p = program;
    Inference *in = p->inference;
    ctx->work = (Work){0};
    scope_begin_phase(ctx, PHASE_FORWARD);
    DeviceBatch inputs = {.pictures = in->pictures};
    if (!tensor_empty(in->tokens)) inputs.tokens = tensor_view(in->tokens.data, I32, p->shape);
    if (!tensor_empty(in->pictures)) inputs.pictures.shape.d[0] = p->shape.d[0];
    if (in->model.config.encoder_layers) inputs.source = inputs.tokens;
    const Targets targets = {.targets = tensor_view(in->targets.data, I32, p->shape), .scale = 1};
    in->model.all_rows = in->use == INFERENCE_HIDDEN;
    TRY(transformer_forward(ctx, &in->model, &inputs, NULL));
    if (in->use == INFERENCE_LOSS) TRY(transformer_loss(ctx, &in->model, &targets));
    if (in->use == INFERENCE_LOGITS) TRY(transformer_logits(ctx, &in->model, in->model.hidden, in->logits));
    scope_end(ctx);
    in->work = ctx->work;
    return OK;
}

/* A pass in an arena mark of its own: only the logits stay valid. */
static Status pass(Inference *in, int64_t batch, int64_t seq) {
    Ctx *ctx = &in->ctx;
    const Config *c = &in->model.config;
    if (c->head_transform || c->class_head) in->logits_dtype = ctx->dtype; // required by the head's bias
    PassSize p = {in, shape2(batch, seq)};
    const double terms[REPLAY_TERMS] = {(double)in->use, (double)batch, (double)seq, in->logits_dtype};
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    if (in->use == INFERENCE_LOGITS) {
        Shape shape = shape3(batch, seq, config_padded_vocab(c));
        TRY(take(ctx, ARENA_SAVED, "logits", in->logits_dtype, shape, &in->logits));
    }
    TRY(replay_run(ctx, &in->replay, terms, pass_work, &p));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

static Status take_lasting(Ctx *ctx, Inference *in) {
    TRY(transformer_take(ctx, &in->model, false));
    if (in->use == INFERENCE_GENERATE) return generator_take(ctx, &in->generator);
    const Config *c = &in->model.config;
    if (in->mapped)
        TRY(take(ctx, ARENA_SAVED, "attention map", ctx->dtype, shape3(in->batch, c->heads, c->context),
                 &in->model.map));
    if (c->architecture->patches)
        TRY(take(ctx, ARENA_SAVED, "pictures", U8, shape4(in->batch, c->image, c->image, c->channels),
                 &in->pictures));
    else
        TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(in->batch, in->seq), &in->tokens));
    in->input_bytes = (int64_t)(tensor_bytes(in->tokens) + tensor_bytes(in->pictures));
    return take(ctx, ARENA_SAVED, "targets", I32, shape2(in->batch, in->seq), &in->targets);
}

static Status rehearse(Ctx *ctx, void *program) {
    Inference *in = program;
    TRY(take_lasting(ctx, in));
    return ctx->measuring && in->use != INFERENCE_GENERATE ? pass(in, in->batch, in->seq) : OK;
}

Status inference_start(Inference *in, const Session *session, bool compare, int64_t seed) {
    return runner_start(&(Runner){session, &in->ctx, &in->model, rehearse, in, compare, seed, in->bytes});
}

static Status upload(Inference *in, Tensor t, const int32_t *values, int64_t batch, int64_t seq) {
    assert(batch * seq <= tensor_count(t));
    scope_begin_phase(&in->ctx, PHASE_READER);
    TRY(in->ctx.device->upload(in->ctx.device, t.data, values, (size_t)(batch * seq) * sizeof *values));
    scope_end(&in->ctx);
    return OK;
}

static Status upload_input(Inference *in, const void *input, int64_t batch, int64_t seq) {
    const Tensor pictures = in->pictures;
    if (tensor_empty(pictures)) return upload(in, in->tokens, input, batch, seq);
    assert(batch <= pictures.shape.d[0]);
    scope_begin_phase(&in->ctx, PHASE_READER);
    TRY(in->ctx.device->upload(in->ctx.device, pictures.data, input,
                               tensor_bytes(pictures) / (size_t)pictures.shape.d[0] * (size_t)batch));
    scope_end(&in->ctx);
    return OK;
}

Status inference_logits(Inference *in, const void *input, int64_t batch, int64_t seq) {
    if (input) TRY(upload_input(in, input, batch, seq));
    return pass(in, batch, seq);
}

Status inference_loss(Inference *in, const int32_t *tokens, const int32_t *targets, int64_t batch,
                      int64_t seq, double *sum) {
    float loss;
    TRY(transformer_zero(&in->ctx, &in->model));
    TRY(upload(in, in->tokens, tokens, batch, seq));
    TRY(upload(in, in->targets, targets, batch, seq));
    TRY(pass(in, batch, seq));
    TRY(values_read(&in->ctx, in->model.loss_sum, 0, 1, &loss));
    *sum = loss;
    return OK;
}
