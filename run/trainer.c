#include "run/trainer_internal.h"

#include "base/memory.h"
#include "comm/rendezvous.h"
#include "model/scales.h"

#include <string.h>

static Status open_parts(Trainer *t, const Session *session) {
    TRY(runner_open(session, &t->ctx, &t->model));
    TRY(shards_open(t->comm, &t->model.parameters));
    return generator_open(session->device, &t->model, true, &t->generator);
}

Status trainer_open(Trainer *t, const Session *session, Comm *comm) {
    *t = (Trainer){.accum = 1, .comm = comm};
    Status status = open_parts(t, session);
    if (status) trainer_close(t);
    return status;
}

/* Drops the graphs; steps are captured again. */
static void drop_graphs(Trainer *t) {
    for (int i = 0; i < 4; i++) {
        replay_close(t->ctx.device, &t->passes[i / 2][i % 2].forward);
        replay_close(t->ctx.device, &t->passes[i / 2][i % 2].backward);
    }
    replay_close(t->ctx.device, &t->cast);
    replay_close(t->ctx.device, &t->exchanged);
    replay_close(t->ctx.device, &t->updated);
}

void trainer_close(Trainer *t) {
    drop_graphs(t);
    memory_free(t->compact);
    memory_free(t->tail);
    generator_close(&t->generator);
    shards_close(&t->model.parameters);
    transformer_close(&t->model);
    if (t->ctx.device) ctx_close(&t->ctx);
}

static Status take_lasting(Trainer *t) {
    if (!t->source_seq) t->source_seq = t->seq;
    TRY(transformer_take(&t->ctx, &t->model, true));
    Parameters *p = &t->model.parameters;
    p->finished = (Tensor){0};
    if (t->accum > 1) TRY(shards_take_finished(&t->ctx, p));
    if (t->accum > 1 && !t->comm) TRY(scales_take_weights(&t->ctx, p));
    return batch_take(t);
}

static Status cast_weights(Ctx *ctx, void *program) {
    Trainer *t = program;
    scope_begin_phase(ctx, PHASE_FORWARD);
    TRY(scales_cast_weights(ctx, &t->model.parameters));
    scope_end(ctx);
    return OK;
}

static Status forward_pass(Ctx *ctx, void *program) {
    Trainer *t = program;
    ctx->training = true;
    scope_begin_phase(ctx, PHASE_FORWARD);
    if (t->gathers && !shards_send(&t->model.parameters)) TRY(shards_gather(ctx, &t->model.parameters));
    TRY(forward_and_loss(t, loss_scale(t)));
    scope_end(ctx);
    t->passes[t->gathers][t->reduces].between = arena_mark(&ctx->arenas[ARENA_SAVED]);
    return OK;
}

static Status backward_pass(Ctx *ctx, void *program) {
    Trainer *t = program;
    scope_begin_phase(ctx, PHASE_BACKWARD);
    ctx->backward = true;
    Status status = transformer_backward(ctx, &t->model);
    ctx->backward = false;
    TRY(status);
    scope_end(ctx);
    if (t->reduces) {
        scope_begin_part(ctx, "exchange");
        TRY(transformer_sum(ctx, &t->model));
        scope_end(ctx);
    }
    return OK;
}

static Status both_passes(Ctx *ctx, void *program) {
    TRY(forward_pass(ctx, program));
    return backward_pass(ctx, program);
}

/* With several ranks there is one graph per pass. Exchanges add branches to the backward pass's graph, and
 * CUDA launches such a graph kernel by kernel; in a single graph this would delay the forward pass. */
static Status run_passes(Trainer *t, const double terms[REPLAY_TERMS]) {
    Passes *p = &t->passes[t->gathers][t->reduces];
    Arena *saved = &t->ctx.arenas[ARENA_SAVED];
    const ArenaMark mark = arena_mark(saved);
    TRY(replay_run(&t->ctx, &p->forward, terms, t->comm ? forward_pass : both_passes, t));
    arena_release(saved, p->between); // a graph's tensors stay where they were taken
    if (t->comm) TRY(replay_run(&t->ctx, &p->backward, terms, backward_pass, t));
    arena_release(saved, mark);
    return OK;
}

static Status update(Ctx *ctx, void *program) {
    Trainer *t = program;
    scope_begin_phase(ctx, PHASE_OPTIMIZER);
    TRY(transformer_update(ctx, &t->model, &t->update));
    scope_end(ctx);
    return OK;
}

static Status rehearse_passes(Ctx *ctx, Trainer *t) {
    const ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SAVED]);
    TRY(both_passes(ctx, t));
    arena_release(&ctx->arenas[ARENA_SAVED], mark);
    return OK;
}

/* Rehearses batches of every width if rows vary: many short rows may need more memory than a few long
 * ones. */
static Status rehearse_widths(Trainer *t) {
    int64_t step = batch_width_step(t->seq);
    Evaluation evaluation;
    for (int64_t width = step; t->counts && width < t->seq; width += step) {
        batch_rehearse(t, t->batch * t->seq / width, width);
        TRY(rehearse_passes(&t->ctx, t));
        TRY(evaluate_batch(t, 1, &evaluation));
    }
    batch_rehearse(t, t->batch, t->seq);
    return OK;
}

static Status rehearse(Ctx *ctx, void *program) {
    Trainer *t = program;
    TRY(take_lasting(t));
    ctx->work = (Work){0};
    ranks_begin(t, t->accum - 1);
    TRY(rehearse_passes(ctx, t));
    ranks_end(t);
    t->micro_work = ctx->work;
    TRY(rehearse_widths(t));
    ctx->work = (Work){0};
    TRY(ranks_finish(t, 1));
    ctx->work = work_times(ctx->work, (double)(t->accum - 1));
    TRY(cast_weights(ctx, t));
    TRY(ranks_exchange(t));
    TRY(update(ctx, t));
    TRY(ranks_send(t));
    t->update_work = t->work = ctx->work;
    work_add(&t->work, work_times(t->micro_work, (double)t->accum));
    t->tokens = t->batch * step_batches(t) * (t->seq + (t->model.config.encoder_layers ? t->source_seq : 0));
    Evaluation evaluation;
    TRY(evaluate_batch(t, 1, &evaluation));
    return t->samples ? generator_take(ctx, &t->generator) : OK;
}

Status trainer_measure(Trainer *t, size_t *bytes) {
    return plan_measure(&t->ctx, rehearse, t, bytes);
}

/* Arenas with memory that ranks exchange. */
static const ArenaKind shared_arenas[] = {ARENA_PARAMETERS, ARENA_GRADIENTS};
enum { SHARED_ARENAS = sizeof shared_arenas / sizeof *shared_arenas };

/* Collective: registers the memory that ranks exchange with the communicator. */
static Status share(Trainer *t) {
    for (int i = 0; i < SHARED_ARENAS && t->comm; i++) {
        Arena *arena = &t->ctx.arenas[shared_arenas[i]];
        TRY(comm_share(t->comm, arena->base, arena->capacity));
    }
    return OK;
}

Status trainer_unshare(Trainer *t) {
    if (t->comm) drop_graphs(t); // NCCL's communicator cannot end while graphs hold its work
    for (int i = 0; i < SHARED_ARENAS && t->comm; i++)
        TRY(comm_unshare(t->comm, t->ctx.arenas[shared_arenas[i]].base));
    return OK;
}

Status trainer_allocate(Trainer *t) {
    TRY(plan_allocate(&t->ctx));
    TRY(share(t));
    return take_lasting(t);
}

Status trainer_gradients(Trainer *t, FetchBatch fetch, void *source) {
    t->work = t->update_work;
    t->tokens = 0;
    for (int64_t i = 0; i < t->accum; i++) {
        TRY(ranks_clear(t, i));
        if (i == 0 && scales_casts_weights(&t->ctx, &t->model.parameters))
            TRY(replay_run(&t->ctx, &t->cast, (const double[REPLAY_TERMS]){0}, cast_weights, t));
        TRY(upload_batch(t, fetch, source, i, NULL));
        const DeviceBatch *m = &t->micro;
        const int64_t *rows = m->tokens.shape.d, *source_rows = m->source.shape.d;
        const double given = 8 * !tensor_empty(m->starts) + 4 * !tensor_empty(m->segments) +
                             2 * !tensor_empty(m->lengths) + !tensor_empty(m->source_lengths);
        const double terms[REPLAY_TERMS] = {(double)rows[0], (double)rows[1], (double)source_rows[1],
                                            given,           loss_scale(t),   t->model.recompute,
                                            t->smoothing,    t->dropout,      t->depth};
        t->ctx.work = (Work){0};
        if (i == t->accum - 1) TRY(ranks_set_flags(t));
        ranks_begin(t, i);
        TRY(run_passes(t, terms));
        ranks_end(t);
        if (t->ctx.work.flops > 0) t->micro_work = t->ctx.work;
        Work filled = t->micro_work;
        filled.needed *= 1 - t->ctx.padding;
        t->ctx.padding = 0;
        work_add(&t->work, filled);
        TRY(ranks_finish(t, i));
    }
    return ranks_exchange(t);
}

Status trainer_update(Trainer *t, double learning_rate) {
    float rate = (float)learning_rate;
    const UpdateOptions *u = &t->update;
    const double terms[REPLAY_TERMS] = {u->beta1, u->beta2, u->eps, u->weight_decay, u->clip};
    TRY(values_write(&t->ctx, t->model.state, ADAMW_LEARNING_RATE, 1, &rate));
    TRY(replay_run(&t->ctx, &t->updated, terms, update, t));
    return ranks_send(t);
}

Status trainer_result(Trainer *t, StepResult *result) {
    float state[ADAMW_STATE_SIZE];
    *result = (StepResult){.blamed = -1};
    TRY(ranks_read(t, result));
    TRY(trainer_read_state(t, state));
    result->norm = state[ADAMW_NORM];
    result->skipped = state[ADAMW_SKIPPED] != 0;
    if (!(t->ctx.fuses & FUSE_FP8)) return OK;
    return scales_renew(&t->ctx, &t->model.parameters, step_batches(t), &result->clipped);
}

Status trainer_step(Trainer *t, FetchBatch fetch, void *source, double learning_rate, StepResult *result) {
    scope_begin_step(&t->ctx);
    TRY(trainer_gradients(t, fetch, source));
    TRY(trainer_update(t, learning_rate));
    TRY(trainer_result(t, result));
    if (t->settles) TRY(trainer_settle(t));
    scope_end(&t->ctx);
    return OK;
}

Status trainer_read_state(Trainer *t, float *state) {
    return values_read(&t->ctx, t->model.state, 0, ADAMW_STATE_SIZE, state);
}

Status trainer_write_state(Trainer *t, const float *state) {
    return values_write(&t->ctx, t->model.state, 0, ADAMW_STATE_SIZE, state);
}
