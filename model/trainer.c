#include "model/trainer.h"

Status trainer_open(Trainer *t, Device *device, const Config *config) {
    *t = (Trainer){.accum = 1};
    ctx_open(&t->ctx, device);
    Status status = transformer_open(config, &t->model);
    if (!status) status = generator_open(device, &t->model, true, &t->generator);
    if (status) trainer_close(t);
    return status;
}

void trainer_close(Trainer *t) {
    replay_close(t->ctx.device, &t->micro);
    replay_close(t->ctx.device, &t->updated);
    generator_close(&t->generator);
    transformer_close(&t->model);
    if (t->ctx.device) ctx_close(&t->ctx);
}

static Status take_lasting(Trainer *t) {
    Ctx *ctx = &t->ctx;
    TRY(transformer_take(ctx, &t->model, true));
    TRY(take(ctx, ARENA_SAVED, "tokens", I32, shape2(t->batch, t->seq), &t->tokens));
    return take(ctx, ARENA_SAVED, "targets", I32, shape2(t->batch, t->seq), &t->targets);
}

static double scale(const Trainer *t) {
    return 1 / ((double)t->batch * (double)t->seq * (double)t->accum);
}

static Status micro_step(Ctx *ctx, void *program) {
    Trainer *t = program;
    Arena *saved = &ctx->arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    ctx->training = true;
    scope_begin(ctx, "forward");
    TRY(transformer_forward(ctx, &t->model, t->tokens, NULL));
    TRY(transformer_loss(ctx, &t->model, t->targets, scale(t)));
    scope_end(ctx);
    scope_begin(ctx, "backward");
    TRY(transformer_backward(ctx, &t->model));
    scope_end(ctx);
    arena_release(saved, mark);
    return OK;
}

static Status update(Ctx *ctx, void *program) {
    Trainer *t = program;
    scope_begin(ctx, "optimizer");
    TRY(transformer_update(ctx, &t->model, &t->update));
    scope_end(ctx);
    return OK;
}

static Status evaluate_batch(Trainer *t, double weight) {
    Arena *saved = &t->ctx.arenas[ARENA_SAVED];
    ArenaMark mark = arena_mark(saved);
    t->ctx.training = false;
    TRY(transformer_forward(&t->ctx, &t->model, t->tokens, NULL));
    TRY(transformer_loss(&t->ctx, &t->model, t->targets, weight));
    arena_release(saved, mark);
    return OK;
}

static Status rehearse(Ctx *ctx, void *program) {
    Trainer *t = program;
    TRY(take_lasting(t));
    ctx->work = (Work){0};
    TRY(micro_step(ctx, t));
    t->work = (Work){ctx->work.flops * (double)t->accum, ctx->work.bytes * (double)t->accum};
    ctx->work = (Work){0};
    TRY(update(ctx, t));
    t->work.flops += ctx->work.flops;
    t->work.bytes += ctx->work.bytes;
    TRY(evaluate_batch(t, 1));
    return t->samples ? generator_take(ctx, &t->generator) : OK;
}

Status trainer_measure(Trainer *t, size_t *bytes) {
    return plan_measure(&t->ctx, rehearse, t, bytes);
}

Status trainer_allocate(Trainer *t) {
    TRY(plan_allocate(&t->ctx));
    return take_lasting(t);
}

/* Uploads in stream order: the kernels that still read the last micro-batch come first. */
static Status upload(Trainer *t, FetchBatch fetch, void *source, int64_t index) {
    Device *device = t->ctx.device;
    MicroBatch batch;
    scope_begin(&t->ctx, "reader");
    TRY(fetch(source, index, &batch));
    TRY(device->upload(device, t->tokens.data, batch.inputs, tensor_bytes(t->tokens)));
    TRY(device->upload(device, t->targets.data, batch.targets, tensor_bytes(t->targets)));
    scope_end(&t->ctx);
    return OK;
}

Status trainer_gradients(Trainer *t, FetchBatch fetch, void *source) {
    const double terms[REPLAY_TERMS] = {(double)t->batch, (double)t->seq, scale(t), t->model.recompute};
    TRY(transformer_zero(&t->ctx, &t->model));
    for (int64_t i = 0; i < t->accum; i++) {
        TRY(upload(t, fetch, source, i));
        TRY(replay_run(&t->ctx, &t->micro, terms, micro_step, t));
    }
    return OK;
}

Status trainer_update(Trainer *t, double learning_rate) {
    float rate = (float)learning_rate;
    const UpdateOptions *u = &t->update;
    const double terms[REPLAY_TERMS] = {u->beta1, u->beta2, u->eps, u->weight_decay, u->clip};
    TRY(values_write(&t->ctx, t->model.state, ADAMW_LEARNING_RATE, 1, &rate));
    return replay_run(&t->ctx, &t->updated, terms, update, t);
}

Status trainer_result(Trainer *t, StepResult *result) {
    float loss, state[ADAMW_STATE_SIZE];
    TRY(values_read(&t->ctx, t->model.loss_sum, 0, 1, &loss));
    TRY(trainer_read_state(t, state));
    *result = (StepResult){.loss = loss, .norm = state[ADAMW_NORM], .skipped = state[ADAMW_SKIPPED] != 0};
    return OK;
}

Status trainer_step(Trainer *t, FetchBatch fetch, void *source, double learning_rate, StepResult *result) {
    scope_begin(&t->ctx, "step");
    TRY(trainer_gradients(t, fetch, source));
    TRY(trainer_update(t, learning_rate));
    TRY(trainer_result(t, result));
    scope_end(&t->ctx);
    return OK;
}

Status trainer_evaluate(Trainer *t, FetchBatch fetch, void *source, int64_t batches, double *loss) {
    Device *device = t->ctx.device;
    TRY(device->fill(device, t->model.loss_sum.data, 0, tensor_bytes(t->model.loss_sum)));
    double weight = 1 / ((double)t->batch * (double)t->seq * (double)batches);
    for (int64_t i = 0; i < batches; i++) {
        TRY(upload(t, fetch, source, i));
        TRY(evaluate_batch(t, weight));
    }
    float sum;
    TRY(values_read(&t->ctx, t->model.loss_sum, 0, 1, &sum));
    *loss = sum;
    return OK;
}

Status trainer_read_state(Trainer *t, float *state) {
    return values_read(&t->ctx, t->model.state, 0, ADAMW_STATE_SIZE, state);
}

Status trainer_write_state(Trainer *t, const float *state) {
    return values_write(&t->ctx, t->model.state, 0, ADAMW_STATE_SIZE, state);
}
