#include "run/trainer_internal.h"

#include "base/memory.h"
#include "comm/rendezvous.h"

#include <math.h>
#include <string.h>

Status trainer_open(Trainer *t, Device *device, const Config *config, Comm *comm) {
    *t = (Trainer){.accum = 1, .comm = comm};
    ctx_open(&t->ctx, device);
    Status status = transformer_open(config, &t->model);
    if (!status) status = shards_open(comm, &t->model.parameters);
    if (!status) status = generator_open(device, &t->model, true, &t->generator);
    if (status) trainer_close(t);
    return status;
}

void trainer_drop_graphs(Trainer *t) {
    for (int i = 0; i < 4; i++) {
        replay_close(t->ctx.device, &t->passes[i / 2][i % 2].forward);
        replay_close(t->ctx.device, &t->passes[i / 2][i % 2].backward);
    }
    replay_close(t->ctx.device, &t->exchanged);
    replay_close(t->ctx.device, &t->updated);
}

void trainer_close(Trainer *t) {
    trainer_drop_graphs(t);
    memory_free(t->memory.compact);
    generator_close(&t->generator);
    shards_close(&t->model.parameters);
    transformer_close(&t->model);
    if (t->ctx.device) ctx_close(&t->ctx);
}

/* Rows that have a target, at most, in a masked-token batch: BERT's masking takes this share of each row. */
static int64_t masked_rows(const Trainer *t, int64_t seq) {
    return t->batch * (int64_t)ceil(MASKED_SHARE * (double)seq);
}

bool counts_targets(const Trainer *t) {
    return t->counts || t->model.config.architecture->task != TASK_NEXT_TOKEN;
}

static Shape pictures_shape(const Trainer *t) {
    const Config *c = &t->model.config;
    return shape4(t->batch, c->image, c->image, c->channels);
}

/* What the model reads: tokens, or pictures. */
static Status take_input(Trainer *t) {
    const Config *c = &t->model.config;
    BatchMemory *m = &t->memory;
    if (!c->architecture->patches)
        return take(&t->ctx, ARENA_SAVED, "tokens", I32, shape2(t->batch, t->seq), &m->tokens);
    return take(&t->ctx, ARENA_SAVED, "pictures", U8, pictures_shape(t), &m->pictures);
}

static Status take_batch(Trainer *t) {
    Ctx *ctx = &t->ctx;
    const Config *c = &t->model.config;
    BatchMemory *m = &t->memory;
    Shape rows = shape2(t->batch, t->seq), each = shape1(t->batch), targets = rows;
    bool masked = c->architecture->task == TASK_MASKED_TOKEN;
    if (masked) targets = shape1(masked_rows(t, t->seq));
    TRY(take_input(t));
    TRY(take(ctx, ARENA_SAVED, "targets", I32, targets, &m->targets));
    t->model.depth = t->depth;
    if (t->dropout > 0 || t->depth > 0) TRY(take(ctx, ARENA_SAVED, "draw", I32, shape1(1), &m->draw));
    t->model.dropout = (Dropout){.rate = t->dropout, .seed = t->seed, .draw = m->draw};
    if (!counts_targets(t)) return OK;
    TRY(take(ctx, ARENA_SAVED, "count", wide_dtype(ctx), shape1(1), &m->count));
    if (c->architecture->patches) return OK;
    if (!t->counts) TRY(take(ctx, ARENA_SAVED, "lengths", I32, each, &m->lengths));
    if (t->counts) TRY(take(ctx, ARENA_SAVED, "starts", I32, rows, &m->starts));
    if (c->segments) TRY(take(ctx, ARENA_SAVED, "segments", I32, rows, &m->segments));
    if (masked) {
        TRY(take(ctx, ARENA_SAVED, "target rows", I32, targets, &m->rows));
        if (!m->compact) m->compact = memory_array(2 * (size_t)shape_count(targets), sizeof *m->compact);
    }
    if (!c->encoder_layers) return OK;
    TRY(take(ctx, ARENA_SAVED, "source lengths", I32, each, &m->source_lengths));
    return take(ctx, ARENA_SAVED, "source", I32, shape2(t->batch, t->source_seq), &m->source);
}

static Status take_lasting(Trainer *t) {
    if (!t->source_seq) t->source_seq = t->seq;
    t->sizes = (BatchSizes){t->batch, t->seq, t->source_seq, true, true, true, false};
    TRY(transformer_take(&t->ctx, &t->model, true));
    Parameters *p = &t->model.parameters;
    p->finished = (Tensor){0};
    if (t->accum > 1)
        TRY(take(&t->ctx, ARENA_GRADIENTS, "finished gradients", p->sums.dtype, p->sums.shape, &p->finished));
    return take_batch(t);
}

double loss_scale(const Trainer *t) {
    if (counts_targets(t)) return 1 / (double)step_batches(t);
    return 1 / ((double)t->batch * (double)t->seq * (double)step_batches(t));
}

/* The part of a tensor that this micro-batch fills: `rows` rows of `columns`; empty unless `present`. */
static Tensor filled(Tensor t, bool present, Shape shape) {
    return tensor_empty(t) || !present ? (Tensor){0} : tensor_view(t.data, t.dtype, shape);
}

static DeviceBatch inputs_of(const Trainer *t) {
    const BatchMemory *m = &t->memory;
    const BatchSizes *s = &t->sizes;
    Shape rows = shape2(s->rows, s->seq), each = shape1(t->batch);
    /* A causal mask keeps every token from the padding behind it. */
    bool lengths = s->lengths && t->model.config.architecture->mask == MASK_FULL;
    return (DeviceBatch){.tokens = filled(m->tokens, true, rows),
                         .pictures = filled(m->pictures, true, pictures_shape(t)),
                         .segments = filled(m->segments, s->segments, rows),
                         .lengths = filled(m->lengths, lengths, each),
                         .starts = filled(m->starts, s->starts, rows),
                         .source = filled(m->source, true, shape2(t->batch, s->source_seq)),
                         .source_lengths = filled(m->source_lengths, s->source_lengths, each)};
}

static Targets targets_of(const Trainer *t, double factor) {
    const BatchMemory *m = &t->memory;
    bool masked = !tensor_empty(m->rows);
    Shape shape = masked ? shape1(masked_rows(t, t->sizes.seq)) : shape2(t->sizes.rows, t->sizes.seq);
    return (Targets){.targets = filled(m->targets, true, shape),
                     .rows = filled(m->rows, true, shape),
                     .count = m->count,
                     .scale = factor,
                     .smoothing = t->ctx.training ? t->smoothing : 0};
}

Status forward_and_loss(Trainer *t, double factor) {
    const DeviceBatch inputs = inputs_of(t);
    const Targets targets = targets_of(t, factor);
    TRY(transformer_forward(&t->ctx, &t->model, &inputs, NULL));
    return transformer_loss(&t->ctx, &t->model, &targets);
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
    TRY(transformer_backward(ctx, &t->model));
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

static void add_work(Trainer *t) {
    t->work.flops += t->micro_work.flops;
    t->work.bytes += t->micro_work.bytes;
    t->work.sent += t->micro_work.sent;
}

/* With several ranks a graph for each pass: one with branches, which exchanges make of the backward pass, is
 * launched kernel by kernel, and the forward pass would wait for that. */
static Status run_passes(Trainer *t, const double terms[REPLAY_TERMS]) {
    Passes *p = &t->passes[t->gathers][t->reduces];
    Arena *saved = &t->ctx.arenas[ARENA_SAVED];
    const ArenaMark mark = arena_mark(saved);
    TRY(replay_run(&t->ctx, &p->forward, terms, t->comm ? forward_pass : both_passes, t));
    arena_release(saved, p->between); // a graph's tensors lie where they were taken
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

/* Batches of every width, where rows vary: what a pass takes for many short rows may be more than for few. */
static Status rehearse_widths(Trainer *t) {
    const BatchSizes largest = t->sizes;
    int64_t step = batch_width_step(t->seq);
    Evaluation evaluation;
    for (int64_t width = step; t->counts && width < t->seq; width += step) {
        t->sizes.seq = width;
        t->sizes.rows = t->batch * t->seq / width;
        TRY(rehearse_passes(&t->ctx, t));
        TRY(evaluate_batch(t, 1, &evaluation));
    }
    t->sizes = largest;
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
    ctx->work.flops *= (double)(t->accum - 1);
    ctx->work.bytes *= (double)(t->accum - 1);
    ctx->work.sent *= (double)(t->accum - 1);
    TRY(ranks_exchange(t));
    TRY(update(ctx, t));
    TRY(ranks_send(t));
    t->update_work = t->work = ctx->work;
    for (int64_t i = 0; i < t->accum; i++) add_work(t);
    t->tokens = t->batch * step_batches(t) * (t->seq + (t->model.config.encoder_layers ? t->source_seq : 0));
    Evaluation evaluation;
    TRY(evaluate_batch(t, 1, &evaluation));
    return t->samples ? generator_take(ctx, &t->generator) : OK;
}

Status trainer_measure(Trainer *t, size_t *bytes) {
    return plan_measure(&t->ctx, rehearse, t, bytes);
}

Status trainer_allocate(Trainer *t) {
    TRY(plan_allocate(&t->ctx));
    TRY(ranks_share(t));
    return take_lasting(t);
}

/* Leaves the targets of a masked-token batch and their rows side by side, with -1 to the end. */
static Status compact_targets(Trainer *t, const int32_t *targets) {
    int64_t room = masked_rows(t, t->sizes.seq), count = 0, positions = t->batch * t->sizes.seq;
    int32_t *kept = t->memory.compact, *rows = kept + room;
    for (int64_t i = 0; i < positions; i++) {
        if (targets[i] < 0) continue;
        if (count == room)
            return fail(ERROR_INTERNAL, "a batch of %lld tokens has more than %lld masked tokens",
                        (long long)positions, (long long)room);
        kept[count] = targets[i];
        rows[count++] = (int32_t)i;
    }
    for (; count < room; count++) kept[count] = rows[count] = -1;
    return OK;
}

static Status put(Trainer *t, Tensor to, const int32_t *from, int64_t count) {
    if (tensor_empty(to) || !from) return OK;
    return t->ctx.device->upload(t->ctx.device, to.data, from, (size_t)count * sizeof *from);
}

/* `divisor`: what the sum of the losses is divided by, where the task counts its targets. */
static Status put_targets(Trainer *t, const Batch *batch, double divisor) {
    BatchMemory *m = &t->memory;
    int64_t all = t->sizes.rows * t->sizes.seq;
    if (!counts_targets(t)) return put(t, m->targets, batch->targets, all);
    float count = (float)divisor;
    TRY(values_write(&t->ctx, m->count, 0, 1, &count));
    if (tensor_empty(m->rows)) return put(t, m->targets, batch->targets, all);
    TRY(compact_targets(t, batch->targets));
    int64_t room = masked_rows(t, t->sizes.seq);
    TRY(put(t, m->targets, m->compact, room));
    return put(t, m->rows, m->compact + room, room);
}

/* Tokens that are there. */
static int64_t present(const int32_t *lengths, int64_t rows, int64_t columns) {
    int64_t count = lengths ? 0 : rows * columns;
    for (int64_t row = 0; lengths && row < rows; row++) count += lengths[row];
    return count;
}

/* A step's loss is a mean over all its targets: each micro-batch's is divided by an equal part of them. */
static double targets_each(const Trainer *t, const Batch *batch) {
    return batch->step_tokens ? (double)batch->step_tokens / (double)step_batches(t) : (double)batch->tokens;
}

/* Uploads in stream order: the kernels that still read the last micro-batch come first. `counted`, unless
 * NULL, gets the targets that count added, and the loss will be a sum. */
Status upload_batch(Trainer *t, FetchBatch fetch, void *source, int64_t index, int64_t *counted) {
    BatchMemory *m = &t->memory;
    Batch batch;
    /* A resumed run counts on from the same step, and so draws the same masks. */
    int64_t number = t->ctx.step * step_batches(t) + rank_of(t) * t->accum + index;
    int32_t draw = (int32_t)(uint32_t)number;
    scope_begin_phase(&t->ctx, PHASE_READER);
    TRY(fetch(source, index, &batch));
    if (t->ctx.recorder && batch.worker)
        record_reading(t->ctx.recorder, &(RecordReading){batch.worker, batch.begun, batch.done});
    int64_t seq = batch.seq ? batch.seq : t->seq;
    int64_t rows = batch.rows ? t->batch * t->seq / seq : t->batch; // the first, where the batch has more
    int64_t source_seq = batch.source_seq ? batch.source_seq : t->source_seq;
    if (seq > t->seq || source_seq > t->source_seq)
        return fail(ERROR_INTERNAL, "a batch of %lld and %lld tokens is longer than memory was planned for",
                    (long long)seq, (long long)source_seq);
    t->sizes = (BatchSizes){rows,        seq, source_seq, batch.segments, batch.lengths, batch.source_lengths,
                            batch.starts};
    t->tokens += present(batch.lengths, rows, seq);
    if (batch.source) t->tokens += present(batch.source_lengths, t->batch, source_seq);
    TRY(put(t, m->tokens, batch.inputs, rows * seq));
    if (!tensor_empty(m->pictures))
        TRY(t->ctx.device->upload(t->ctx.device, m->pictures.data, batch.pictures,
                                  (size_t)shape_count(pictures_shape(t))));
    TRY(put(t, m->segments, batch.segments, t->batch * seq));
    TRY(put(t, m->starts, batch.starts, rows * seq));
    TRY(put(t, m->lengths, batch.lengths, t->batch));
    TRY(put(t, m->source, batch.source, t->batch * source_seq));
    TRY(put(t, m->source_lengths, batch.source_lengths, t->batch));
    TRY(put(t, m->draw, &draw, 1));
    if (counted) *counted += batch.tokens;
    TRY(put_targets(t, &batch, counted ? 1 : targets_each(t, &batch)));
    scope_end(&t->ctx);
    return OK;
}

Status trainer_gradients(Trainer *t, FetchBatch fetch, void *source) {
    t->work = t->update_work;
    t->tokens = 0;
    for (int64_t i = 0; i < t->accum; i++) {
        TRY(ranks_clear(t, i));
        TRY(upload_batch(t, fetch, source, i, NULL));
        const BatchSizes *s = &t->sizes;
        const double given = 8 * s->starts + 4 * s->segments + 2 * s->lengths + s->source_lengths;
        const double terms[REPLAY_TERMS] = {(double)s->rows, (double)s->seq, (double)s->source_seq,
                                            given,           loss_scale(t),  t->model.recompute,
                                            t->smoothing,    t->dropout,     t->depth};
        t->ctx.work = (Work){0};
        if (i == t->accum - 1) TRY(ranks_say(t));
        ranks_begin(t, i);
        TRY(run_passes(t, terms));
        ranks_end(t);
        if (t->ctx.work.flops > 0) t->micro_work = t->ctx.work;
        add_work(t);
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
    return OK;
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
