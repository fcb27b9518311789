#include "tests/support/task.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

enum { DISTURBANCES = 3, DIRECTIONS = 4 };

/* ---- the computations ---- */

static Tensor put(Rig *rig, const char *name, Shape shape, const int32_t *values) {
    return values ? rig_put_ints(rig, name, shape, values) : (Tensor){0};
}

void task_session_open(TaskSession *s, Rig *rig, const ModelTask *task, bool training) {
    const Shape all = shape3(task->steps, task->batch, task->seq), each = shape2(task->steps, task->batch);
    const Shape sources = shape3(task->steps, task->batch, task->source_seq);
    rig->ctx.training = training;
    expect_ok(transformer_open(&task->config, &s->model));
    s->model.recompute = task->recompute;
    expect_ok(transformer_take(&rig->ctx, &s->model, training));
    const Config *c = &task->config;
    s->pictures = (Tensor){0};
    if (task->pictures)
        s->pictures =
            rig_put_bytes(rig, "pictures", shape4(task->steps * task->batch, c->image, c->image, c->channels),
                          task->pictures);
    s->tokens = put(rig, "tokens", all, task->tokens);
    s->targets = put(rig, "targets", all, task->rows ? task->row_targets : task->targets);
    s->segments = put(rig, "segments", all, task->segments);
    s->lengths = put(rig, "lengths", each, task->lengths);
    s->source = put(rig, "source", sources, task->source);
    s->source_lengths = put(rig, "source lengths", each, task->source_lengths);
    s->rows = put(rig, "rows", all, task->rows);
    const int32_t draw = 77;
    s->model.dropout = (Dropout){.rate = task->dropout, .seed = UINT64_C(0x123456789ABCDEF)};
    s->model.depth = task->depth;
    if (task->dropout > 0 || task->depth > 0)
        s->model.dropout.draw = rig_put_ints(rig, "draw", shape1(1), &draw);
    if (!rig->ctx.measuring) expect_ok(checkpoint_load(&rig->ctx, task->folder, &s->model.parameters));
}

/* One step's part of (steps, ...). */
static Tensor of_step(Tensor all, int64_t step) {
    if (tensor_empty(all)) return all;
    Shape shape = {.rank = all.shape.rank - 1};
    memcpy(shape.d, all.shape.d + 1, (size_t)shape.rank * sizeof *shape.d);
    size_t bytes = (size_t)(step * shape_count(shape)) * sizeof(int32_t);
    return tensor_view((void *)((uintptr_t)all.data + bytes), I32, shape);
}

/* One step's part of (steps * batch, ...). */
static Tensor pictures_of_step(const TaskSession *s, const ModelTask *task, int64_t step) {
    Tensor t = s->pictures;
    if (tensor_empty(t)) return t;
    t.shape.d[0] = task->batch;
    return tensor_view((void *)((uintptr_t)t.data + tensor_bytes(t) * (size_t)step), U8, t.shape);
}

/* Disturbs the weights; `kept`, unless NULL, receives the original ones. */
static void disturb(const Rig *rig, const ModelTask *task, Tensor weight, int64_t step, double *kept) {
    if (rig->ctx.measuring || (task->noise == 0 && !task->direction)) return;
    assert_true(rig->ctx.dtype == F64 && rig->variant->backend == BACKEND_CPU);
    double *w = weight.data;
    for (int64_t i = 0; i < tensor_count(weight); i++) {
        if (kept) kept[i] = w[i];
        if (task->noise > 0) w[i] *= 1 + task->noise * random_normal(task->seed, (uint64_t)step, (uint64_t)i);
        if (task->direction) w[i] += task->distance * task->direction[i];
    }
}

static double scale_of(const ModelTask *task, int64_t step) {
    int64_t size = task->batch * task->seq, count = 0;
    for (int64_t i = 0; i < size; i++) count += task->targets[step * size + i] >= 0;
    return 1.0 / (double)count;
}

void task_forward(TaskSession *s, Rig *rig, const ModelTask *task, int64_t step) {
    Ctx *ctx = &rig->ctx;
    const DeviceBatch inputs = {.tokens = of_step(s->tokens, step),
                                .pictures = pictures_of_step(s, task, step),
                                .segments = of_step(s->segments, step),
                                .lengths = of_step(s->lengths, step),
                                .source = of_step(s->source, step),
                                .source_lengths = of_step(s->source_lengths, step)};
    const Targets targets = {.targets = of_step(s->targets, step),
                             .rows = of_step(s->rows, step),
                             .scale = scale_of(task, step),
                             .smoothing = task->smoothing};
    expect_ok(transformer_zero(ctx, &s->model));
    expect_ok(transformer_forward(ctx, &s->model, &inputs, NULL));
    expect_ok(transformer_loss(ctx, &s->model, &targets));
}

void task_get_logits(const TaskSession *s, Rig *rig, double *values) {
    Tensor hidden = s->model.hidden;
    Shape shape = hidden.shape;
    const Config *c = &s->model.config;
    if (c->class_head) shape.d[1] = 1;
    shape.d[2] = config_padded_vocab(c);
    Dtype dtype = c->head_transform || c->class_head ? rig->ctx.dtype : wide_dtype(&rig->ctx);
    Tensor logits = rig_blank(rig, "logits", dtype, shape);
    expect_ok(transformer_logits(&rig->ctx, &s->model, hidden, logits));
    rig_get(rig, tensor_columns(logits, 0, c->vocab), values);
}

void task_gradient(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    TaskSession s;
    task_session_open(&s, rig, task, true);
    disturb(rig, task, s.model.parameters.weight, 0, NULL);
    task_forward(&s, rig, task, 0);
    task_get_logits(&s, rig, out[0]);
    rig_get(rig, s.model.loss_sum, out[1]);
    expect_ok(transformer_backward(&rig->ctx, &s.model));
    rig_get(rig, s.model.parameters.gradient, out[2]);
    transformer_close(&s.model);
}

/* out: loss */
static void loss_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    TaskSession s;
    task_session_open(&s, rig, task, task->dropout > 0 || task->depth > 0); // dropout and stochastic depth
                                                                            // exist only in training
    disturb(rig, task, s.model.parameters.weight, 0, NULL);
    task_forward(&s, rig, task, 0);
    rig_get(rig, s.model.loss_sum, out[0]);
    transformer_close(&s.model);
}

static void set_learning_rate(Rig *rig, Tensor state, double rate) {
    float narrow = (float)rate;
    const void *value = state.dtype == F64 ? (const void *)&rate : (const void *)&narrow;
    if (!rig->ctx.measuring)
        expect_ok(rig->ctx.device->upload(rig->ctx.device, state.data, value, dtype_size(state.dtype)));
}

/* out: losses (steps), norms (steps), parameters (flat); in: memory for parameters */
void task_training(Rig *rig, const void *what, double *const *in, double *const *out) {
    const ModelTask *task = what;
    TaskSession s;
    task_session_open(&s, rig, task, true);
    Parameters *p = &s.model.parameters;
    for (int64_t step = 0; step < task->steps; step++) {
        double state[ADAMW_STATE_SIZE] = {0};
        ArenaMark mark = arena_mark(&rig->ctx.arenas[ARENA_SAVED]);
        disturb(rig, task, p->weight, step, in[0]);
        task_forward(&s, rig, task, step);
        expect_ok(transformer_backward(&rig->ctx, &s.model));
        if (task->noise > 0 && !rig->ctx.measuring) memcpy(p->weight.data, in[0], tensor_bytes(p->weight));
        set_learning_rate(rig, s.model.state, task->learning_rate);
        expect_ok(transformer_update(&rig->ctx, &s.model, &task->update));
        rig_get(rig, s.model.loss_sum, &out[0][step]);
        rig_get(rig, s.model.state, state);
        out[1][step] = state[ADAMW_NORM];
        arena_release(&rig->ctx.arenas[ARENA_SAVED], mark);
    }
    rig_get(rig, tensor_empty(p->master) ? p->weight : p->master, out[2]);
    transformer_close(&s.model);
}

/* ---- the fixtures ---- */

void task_read_options(ModelTask *task, const Safetensors *file) {
    const double *o = doubles_of(file, "options");
    task->learning_rate = o[0];
    task->update =
        (UpdateOptions){.beta1 = o[1], .beta2 = o[2], .eps = o[3], .weight_decay = o[4], .clip = o[5]};
    if (safetensors_find(file, "options")->count > 6) task->smoothing = o[6];
}

static int32_t *ints_of(const Safetensors *file, const char *name) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    if (!entry) return NULL;
    assert_true(entry->type == SAFE_I32);
    int32_t *values = integers(entry->count, 1);
    memcpy(values, entry->data, (size_t)entry->bytes);
    return values;
}

static uint8_t *bytes_of(const SafetensorsEntry *entry) {
    assert_true(entry->type == SAFE_U8);
    uint8_t *values = (uint8_t *)zeros(entry->count / (int64_t)sizeof(double) + 1);
    memcpy(values, entry->data, (size_t)entry->bytes);
    return values;
}

/* The rows of each step that have a target, and these targets, with -1 to the end. */
static void find_rows(ModelTask *task) {
    int64_t size = task->batch * task->seq;
    task->rows = integers(task->steps * size, 1);
    task->row_targets = integers(task->steps * size, 1);
    for (int64_t step = 0; step < task->steps; step++) {
        int64_t count = step * size;
        for (int64_t i = 0; i < size; i++) {
            int32_t target = task->targets[step * size + i];
            if (target < 0) continue;
            task->rows[count] = (int32_t)i;
            task->row_targets[count++] = target;
        }
        for (; count < (step + 1) * size; count++) task->rows[count] = task->row_targets[count] = -1;
    }
}

ModelTask task_open(const char *folder, const char *values, Safetensors **file) {
    ModelTask task = {.folder = folder};
    expect_ok(checkpoint_config(folder, &task.config));
    expect_ok(safetensors_open(values, file));
    const SafetensorsEntry *inputs = safetensors_find(*file, "inputs"),
                           *source = safetensors_find(*file, "source"),
                           *pictures = safetensors_find(*file, "pictures");
    assert_true(inputs || pictures);
    /* Without targets there is one batch, and no axis of steps. */
    int first = pictures ? pictures->rank - 4 : inputs->rank - 2;
    task.steps = !first ? 1 : pictures ? pictures->d[0] : inputs->d[0];
    task.batch = pictures ? pictures->d[first] : inputs->d[first];
    task.seq = pictures ? 1 : inputs->d[first + 1];
    if (pictures) task.pictures = bytes_of(pictures);
    task.source_seq = source ? source->d[2] : 0;
    task.tokens = ints_of(*file, "inputs");
    task.targets = ints_of(*file, "targets");
    task.segments = ints_of(*file, "segments");
    task.lengths = ints_of(*file, "lengths");
    task.source = ints_of(*file, "source");
    task.source_lengths = ints_of(*file, "source_lengths");
    if (task.targets && task.config.architecture->task == TASK_MASKED_TOKEN) find_rows(&task);
    if (task.targets) task_read_options(&task, *file);
    return task;
}

/* ---- bounds ---- */

TaskResult task_result(int64_t a, int64_t b, int64_t c) {
    return (TaskResult){{a, b, c}, {zeros(a), zeros(b), zeros(c)}};
}

double task_unit(const Variant *variant) {
    Units units = units_of(variant);
    return fmax(units.storage, units.product);
}

/* The largest change of each output under disturbances of the weights by `unit`. */
TaskResult task_sensitivity(const ModelTask *task, Body body, double unit, const TaskResult *like) {
    const int64_t *n = like->counts;
    TaskResult exact = task_result(n[0], n[1], n[2]), moved = task_result(n[0], n[1], n[2]),
               change = task_result(n[0], n[1], n[2]);
    ModelTask disturbed = *task;
    double *room[] = {zeros(n[2])};
    rig_run_once(&specification, body, task, room, exact.values);
    for (int i = 0; i < DISTURBANCES; i++) {
        disturbed.noise = unit;
        disturbed.seed = (uint64_t)i;
        rig_run_once(&specification, body, &disturbed, room, moved.values);
        for (int o = 0; o < TASK_OUTPUTS; o++)
            for (int64_t j = 0; j < n[o]; j++)
                change.values[o][j] =
                    fmax(change.values[o][j], fabs(moved.values[o][j] - exact.values[o][j]));
    }
    return change;
}

static double length_of(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    return sqrt(sum);
}

/* |got - want| <= TASK_ALLOWED |change| in the 2-norm, plus the fixture's own rounding to fp32. */
void task_expect_near(const double *got, const double *want, const double *change, int64_t count,
                      const char *name) {
    double *difference = zeros(count);
    for (int64_t i = 0; i < count; i++) difference[i] = got[i] - want[i];
    double off = length_of(difference, count), size = length_of(want, count);
    double bound = TASK_ALLOWED * length_of(change, count) + 0x1p-24 * size;
    if (!(off <= bound))
        fail_msg("%s: off by %.3g, but %.3g is allowed (its norm is %.3g)", name, off, bound, size);
}

static void expect_parameters_near(const Parameters *p, const double *got, const double *want,
                                   const double *change) {
    for (int i = 0; i < p->count; i++) {
        int64_t at = p->info[i].offset;
        task_expect_near(got + at, want + at, change + at, p->info[i].count, p->info[i].name);
    }
}

/* Numbers of successive steps: an error in one step persists in later ones. */
void task_expect_curve_near(const double *got, const double *want, const double *change, int64_t steps,
                            double unit, const char *name) {
    double worst = 0;
    for (int64_t i = 0; i < steps; i++) {
        worst = fmax(worst, change[i]);
        double bound = TASK_ALLOWED * (worst + unit * fabs(want[i]));
        if (!(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s of step %lld is %.9g, but must be within %.3g of %.9g", name, (long long)i, got[i],
                     bound, want[i]);
    }
}

/* ---- whole tests ---- */

void task_check_gradients(const ModelTask *task, const Safetensors *file, const Variant *variant) {
    Parameters p;
    double unit = task_unit(variant);
    parameters_open(&task->config, &p);
    TaskResult got = task_result(task->batch * task->seq * task->config.vocab, 1, p.size);
    rig_run(variant, task_gradient, task, NULL, got.values);
    TaskResult change = task_sensitivity(task, task_gradient, unit, &got);
    task_expect_near(got.values[0], doubles_of(file, "logits"), change.values[0], got.counts[0], "logits");
    task_expect_curve_near(got.values[1], doubles_of(file, "loss"), change.values[1], 1, unit, "the loss");
    expect_parameters_near(&p, got.values[2], flat_of(file, "gradient.", &p), change.values[2]);
    /* Padding of the vocabulary and gaps between parameters get no gradient. */
    for (int i = 0; i < p.count; i++) {
        const ParameterInfo *info = &p.info[i];
        int64_t end = i + 1 < p.count ? p.info[i + 1].offset : p.size;
        for (int64_t k = info->offset + info->rows * (info->count / info->shape.d[0]); k < end; k++)
            assert_true(got.values[2][k] == 0);
    }
    parameters_close(&p);
}

void task_check_steps(const ModelTask *task, const Safetensors *file, const Variant *variant) {
    Parameters p;
    parameters_open(&task->config, &p);
    TaskResult got = task_result(task->steps, task->steps, p.size);
    double *room[] = {zeros(p.size)};
    rig_run(variant, task_training, task, room, got.values);
    TaskResult change = task_sensitivity(task, task_training, task_unit(variant), &got);
    double unit = task_unit(variant);
    const double *norms = doubles_of(file, "norms");
    bool bound = false, free = false;
    for (int64_t i = 0; i < task->steps; i++) {
        bound |= norms[i] > task->update.clip;
        free |= norms[i] < task->update.clip;
    }
    assert_true(bound && free); /* the clip is active in some steps only */
    task_expect_curve_near(got.values[0], doubles_of(file, "losses"), change.values[0], task->steps, unit,
                           "the loss");
    task_expect_curve_near(got.values[1], norms, change.values[1], task->steps, unit, "the norm");
    expect_parameters_near(&p, got.values[2], flat_of(file, "updated.", &p), change.values[2]);
    parameters_close(&p);
}

static double slope(ModelTask *task, const double *direction, double h) {
    double up, down, *out[] = {&up}, *out2[] = {&down};
    task->direction = direction;
    task->distance = h;
    rig_run_once(&specification, loss_body, task, NULL, out);
    task->distance = -h;
    rig_run_once(&specification, loss_body, task, NULL, out2);
    task->direction = NULL;
    return (up - down) / (2 * h);
}

/* The derivative of the loss along a direction, extrapolated from two central differences, must equal the
 * gradient's product with it. The correction by the second difference bounds the error of the
 * extrapolation. */
static void expect_slope(ModelTask *task, const double *direction, const double *gradient, int64_t size,
                         const char *name) {
    const double h = 1e-3;
    double product = 0, wide = slope(task, direction, h), narrow = slope(task, direction, h / 2);
    for (int64_t i = 0; i < size; i++) product += gradient[i] * direction[i];
    double found = (4 * narrow - wide) / 3, bound = fabs(narrow - wide) + 1e-14 / h;
    if (!(fabs(found - product) <= bound))
        fail_msg("along %s the loss has the slope %.12g, its gradient says %.12g; %.3g is allowed", name,
                 found, product, bound);
}

void task_check_slopes(ModelTask *task) {
    Parameters p;
    parameters_open(&task->config, &p);
    TaskResult exact = task_result(task->batch * task->seq * task->config.vocab, 1, p.size);
    rig_run(&specification, task_gradient, task, NULL, exact.values);
    for (int i = 0; i < DIRECTIONS; i++)
        expect_slope(task, normals(p.size, 0.1, F64), exact.values[2], p.size, "a random direction");
    for (int i = 0; i < p.count; i++) {
        double *direction = zeros(p.size), *part = normals(p.info[i].count, 1, F64);
        memcpy(direction + p.info[i].offset, part, (size_t)p.info[i].count * sizeof *part);
        expect_slope(task, direction, exact.values[2], p.size, p.info[i].name);
    }
    parameters_close(&p);
}

void task_check_recomputation(ModelTask *task, const Variant *variant) {
    Parameters p;
    parameters_open(&task->config, &p);
    int64_t logits = task->batch * task->seq * task->config.vocab;
    TaskResult kept = task_result(logits, 1, p.size), again = task_result(logits, 1, p.size);
    task->recompute = RECOMPUTE_NONE;
    rig_run(variant, task_gradient, task, NULL, kept.values);
    for (task->recompute = RECOMPUTE_HIDDEN; task->recompute <= RECOMPUTE_BLOCKS; task->recompute++) {
        rig_run(variant, task_gradient, task, NULL, again.values);
        expect_equal(again.values[1], kept.values[1], 1, "loss");
        expect_equal(again.values[2], kept.values[2], p.size, "gradient");
    }
    parameters_close(&p);
}
