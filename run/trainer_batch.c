/* Uploads a trainer's micro-batches to the device. */
#include "run/trainer_internal.h"

#include "base/memory.h"

#include <math.h>

/* ---- memory for the largest ---- */

/* The most rows with a target in a masked-token batch: BERT's masking selects this share of each row. */
static int64_t masked_rows(const Trainer *t, int64_t seq) {
    return t->batch * (int64_t)ceil(MASKED_SHARE * (double)seq);
}

bool counts_targets(const Trainer *t) {
    return t->counts || t->model.config.architecture->task != TASK_NEXT_TOKEN;
}

double loss_scale(const Trainer *t) {
    if (counts_targets(t)) return 1 / (double)step_batches(t);
    return 1 / ((double)t->batch * (double)t->seq * (double)step_batches(t));
}

Status forward_and_loss(Trainer *t, double factor) {
    const Targets targets = {.targets = t->micro.targets,
                             .rows = t->micro.rows,
                             .count = t->micro.count,
                             .scale = factor,
                             .smoothing = t->ctx.training ? t->smoothing : 0};
    TRY(transformer_forward(&t->ctx, &t->model, &t->micro, NULL));
    return transformer_loss(&t->ctx, &t->model, &targets);
}

static Shape pictures_shape(const Trainer *t) {
    const Config *c = &t->model.config;
    return shape4(t->batch, c->image, c->image, c->channels);
}

/* Memory for the model's input: tokens, or pictures. */
static Status take_input(Trainer *t) {
    const Config *c = &t->model.config;
    DeviceBatch *m = &t->memory;
    if (!c->architecture->patches)
        return take(&t->ctx, ARENA_SAVED, "tokens", I32, shape2(t->batch, t->seq), &m->tokens);
    return take(&t->ctx, ARENA_SAVED, "pictures", U8, pictures_shape(t), &m->pictures);
}

static Status take_all(Trainer *t) {
    Ctx *ctx = &t->ctx;
    const Config *c = &t->model.config;
    DeviceBatch *m = &t->memory;
    Shape rows = shape2(t->batch, t->seq), each = shape1(t->batch), targets = rows;
    bool masked = c->architecture->task == TASK_MASKED_TOKEN;
    if (masked) targets = shape1(masked_rows(t, t->seq));
    TRY(take_input(t));
    TRY(take(ctx, ARENA_SAVED, "targets", I32, targets, &m->targets));
    if (t->dropout > 0 || t->depth > 0) TRY(take(ctx, ARENA_SAVED, "draw", I32, shape1(1), &t->draw));
    if (!counts_targets(t)) return OK;
    TRY(take(ctx, ARENA_SAVED, "count", wide_dtype(ctx), shape1(1), &m->count));
    if (c->architecture->patches) return OK;
    if (!t->counts) TRY(take(ctx, ARENA_SAVED, "lengths", I32, each, &m->lengths));
    if (t->counts) TRY(take(ctx, ARENA_SAVED, "starts", I32, rows, &m->starts));
    if (c->segments) TRY(take(ctx, ARENA_SAVED, "segments", I32, rows, &m->segments));
    if (masked) {
        TRY(take(ctx, ARENA_SAVED, "target rows", I32, targets, &m->rows));
        if (!t->compact) t->compact = memory_array(2 * (size_t)shape_count(targets), sizeof *t->compact);
    }
    if (!c->encoder_layers) return OK;
    TRY(take(ctx, ARENA_SAVED, "source lengths", I32, each, &m->source_lengths));
    return take(ctx, ARENA_SAVED, "source", I32, shape2(t->batch, t->source_seq), &m->source);
}

/* ---- the parts that a micro-batch fills ---- */

/* Empty unless `present`. */
static Tensor part(Tensor t, bool present, Shape shape) {
    return tensor_empty(t) || !present ? (Tensor){0} : tensor_view(t.data, t.dtype, shape);
}

/* The parts that batch `b` fills. A causal mask already hides padding after the tokens. */
static DeviceBatch parts_of(const Trainer *t, const Batch *b, int64_t rows, int64_t seq, int64_t source_seq) {
    const DeviceBatch *m = &t->memory;
    const Shape all = shape2(rows, seq), each = shape1(t->batch);
    const Shape targets = tensor_empty(m->rows) ? all : shape1(masked_rows(t, seq));
    const bool full = t->model.config.architecture->mask == MASK_FULL;
    return (DeviceBatch){.tokens = part(m->tokens, true, all),
                         .pictures = part(m->pictures, true, pictures_shape(t)),
                         .segments = part(m->segments, b->segments, all),
                         .lengths = part(m->lengths, b->lengths && full, each),
                         .starts = part(m->starts, b->starts, all),
                         .source = part(m->source, true, shape2(t->batch, source_seq)),
                         .source_lengths = part(m->source_lengths, b->source_lengths, each),
                         .targets = part(m->targets, true, targets),
                         .rows = part(m->rows, true, targets),
                         .count = m->count};
}

void batch_rehearse(Trainer *t, int64_t rows, int64_t seq) {
    const int32_t given = 0;
    const Batch batch = {.segments = &given, .lengths = &given, .source_lengths = &given};
    t->micro = parts_of(t, &batch, rows, seq, t->source_seq);
}

Status batch_take(Trainer *t) {
    TRY(take_all(t));
    t->model.depth = t->depth;
    t->model.dropout = (Dropout){.rate = t->dropout, .seed = t->seed, .draw = t->draw};
    batch_rehearse(t, t->batch, t->seq);
    return OK;
}

/* ---- uploading ---- */

/* Compacts the targets of a masked-token batch and their rows, with -1 to the end. */
static Status compact_targets(Trainer *t, const int32_t *targets) {
    int64_t room = tensor_count(t->micro.targets), count = 0, positions = tensor_count(t->micro.tokens);
    int32_t *kept = t->compact, *rows = kept + room;
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

static Status put(Trainer *t, Tensor to, const void *from) {
    if (tensor_empty(to) || !from) return OK;
    return t->ctx.device->upload(t->ctx.device, to.data, from, tensor_bytes(to));
}

/* `divisor` divides the sum of the losses if the task counts its targets. */
static Status put_targets(Trainer *t, const Batch *batch, double divisor) {
    const DeviceBatch *m = &t->micro;
    float count = (float)divisor;
    if (counts_targets(t)) TRY(values_write(&t->ctx, m->count, 0, 1, &count));
    if (tensor_empty(m->rows)) return put(t, m->targets, batch->targets);
    TRY(compact_targets(t, batch->targets));
    TRY(put(t, m->targets, t->compact));
    return put(t, m->rows, t->compact + tensor_count(m->targets));
}

static Status put_all(Trainer *t, const Batch *batch) {
    const DeviceBatch *m = &t->micro;
    TRY(put(t, m->tokens, batch->inputs));
    TRY(put(t, m->pictures, batch->pictures));
    TRY(put(t, m->segments, batch->segments));
    TRY(put(t, m->starts, batch->starts));
    TRY(put(t, m->lengths, batch->lengths));
    TRY(put(t, m->source, batch->source));
    return put(t, m->source_lengths, batch->source_lengths);
}

/* Tokens without padding. */
static int64_t present(const int32_t *lengths, int64_t rows, int64_t columns) {
    int64_t count = lengths ? 0 : rows * columns;
    for (int64_t row = 0; lengths && row < rows; row++) count += lengths[row];
    return count;
}

/* A step's loss is a mean over all its targets, so each micro-batch's sum is divided by an equal share of
 * their number. */
static double targets_each(const Trainer *t, const Batch *batch) {
    return batch->step_tokens ? (double)batch->step_tokens / (double)step_batches(t) : (double)batch->tokens;
}

static Status lay_out(Trainer *t, const Batch *batch) {
    int64_t seq = batch->seq ? batch->seq : t->seq;
    int64_t rows = batch->rows ? t->batch * t->seq / seq : t->batch; // only the first rows if the batch has
                                                                     // more
    int64_t source_seq = batch->source_seq ? batch->source_seq : t->source_seq;
    if (seq > t->seq || source_seq > t->source_seq)
        return fail(ERROR_INTERNAL, "a batch of %lld and %lld tokens is longer than memory was planned for",
                    (long long)seq, (long long)source_seq);
    int64_t valid = present(batch->lengths, rows, seq), all = rows * seq;
    if (batch->source) {
        valid += present(batch->source_lengths, t->batch, source_seq);
        all += t->batch * source_seq;
    }
    t->micro = parts_of(t, batch, rows, seq, source_seq);
    t->tokens += valid;
    t->ctx.padding = 1 - (double)valid / (double)all;
    return OK;
}

/* In stream order, after the kernels that still read the previous micro-batch. */
Status upload_batch(Trainer *t, FetchBatch fetch, void *source, int64_t index, int64_t *counted) {
    Batch batch;
    /* A resumed run continues from the same step, so it draws the same masks. */
    int64_t number = t->ctx.step * step_batches(t) + rank_of(t) * t->accum + index;
    int32_t draw = (int32_t)(uint32_t)number;
    scope_begin_phase(&t->ctx, PHASE_READER);
    TRY(fetch(source, index, &batch));
    if (t->ctx.recorder && batch.worker)
        record_reading(t->ctx.recorder, &(RecordReading){batch.worker, batch.begun, batch.done});
    TRY(lay_out(t, &batch));
    TRY(put_all(t, &batch));
    TRY(put(t, t->draw, &draw));
    if (counted) *counted += batch.tokens;
    TRY(put_targets(t, &batch, counted ? 1 : targets_each(t, &batch)));
    scope_end(&t->ctx);
    return OK;
}
