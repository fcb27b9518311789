/* model/transformer against PyTorch (fixtures/make_gpt2.py): logits, loss, every gradient, the parameters
 * after five AdamW steps with clipping and decay, and a curve of a hundred losses; for the specification
 * in double precision, and for each form, dtype and device. Gradients of the whole model against central
 * differences.
 *
 * How far a form may be off is measured, not tuned: the specification is run again with the weights
 * disturbed, anew in each step, by relative noise of the dtype's unit roundoff. A stable computation gives
 * the exact result of slightly disturbed inputs (Higham 2002, section 1.5); its path through a block
 * rounds about ten times, so ALLOWED times what one disturbance does is the bound. */
#include "base/random.h"
#include "model/checkpoint.h"
#include "model/transformer.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"

#include <math.h>
#include <string.h>

#define FIXTURE "tests/fixtures/gpt2/"

enum { ALLOWED = 10, DISTURBANCES = 3, DIRECTIONS = 4 };

/* What a body computes. */
typedef struct {
    const char *folder; // of the model
    Config config;
    int64_t steps, batch, seq;
    int32_t *tokens, *targets; // (steps, batch, seq)
    double learning_rate;
    UpdateOptions update;
    bool recompute;
    double noise;            // relative, on the weights; CPU and fp64 only
    uint64_t seed;           // of the noise
    const double *direction; // (size), added to the weights `distance` times; CPU and fp64 only
    double distance;
} Task;

/* ---- the computations ---- */

typedef struct {
    Transformer model;
    Tensor tokens, targets; // (steps, batch, seq) i32
} Session;

static void session_open(Session *s, Rig *rig, const Task *task, bool training) {
    rig->ctx.training = training;
    expect_ok(transformer_open(&task->config, &s->model));
    s->model.recompute = task->recompute;
    expect_ok(transformer_take(&rig->ctx, &s->model, training));
    Shape shape = shape3(task->steps, task->batch, task->seq);
    s->tokens = rig_put_ints(rig, "tokens", shape, task->tokens);
    s->targets = rig_put_ints(rig, "targets", shape, task->targets);
    if (!rig->ctx.measuring) expect_ok(checkpoint_load(&rig->ctx, task->folder, &s->model.parameters));
}

/* The batch of one step out of (steps, batch, seq). */
static Tensor batch_of(const Task *task, Tensor all, int64_t step) {
    size_t bytes = (size_t)(step * task->batch * task->seq) * sizeof(int32_t);
    return tensor_view((void *)((uintptr_t)all.data + bytes), I32, shape2(task->batch, task->seq));
}

/* Moves the weights; `kept`, unless NULL, gets what they were. */
static void disturb(const Rig *rig, const Task *task, Tensor weight, int64_t step, double *kept) {
    if (rig->ctx.measuring || (task->noise == 0 && !task->direction)) return;
    assert_true(rig->ctx.dtype == F64 && rig->variant->backend == BACKEND_CPU);
    double *w = weight.data;
    for (int64_t i = 0; i < tensor_count(weight); i++) {
        if (kept) kept[i] = w[i];
        if (task->noise > 0) w[i] *= 1 + task->noise * random_normal(task->seed, (uint64_t)step, (uint64_t)i);
        if (task->direction) w[i] += task->distance * task->direction[i];
    }
}

static double scale_of(const Task *task, int64_t step) {
    int64_t size = task->batch * task->seq, count = 0;
    for (int64_t i = 0; i < size; i++) count += task->targets[step * size + i] >= 0;
    return 1.0 / (double)count;
}

static void forward_and_loss(Session *s, Rig *rig, const Task *task, int64_t step) {
    Ctx *ctx = &rig->ctx;
    expect_ok(transformer_zero(ctx, &s->model));
    const Inputs inputs = {.tokens = batch_of(task, s->tokens, step)};
    const Targets targets = {.targets = batch_of(task, s->targets, step), .scale = scale_of(task, step)};
    expect_ok(transformer_forward(ctx, &s->model, &inputs, NULL));
    expect_ok(transformer_loss(ctx, &s->model, &targets));
}

/* The logits of `hidden`, without the vocabulary's padding. */
static void get_logits(const Session *s, Rig *rig, double *values) {
    Tensor hidden = s->model.hidden;
    Shape shape = hidden.shape;
    shape.d[2] = config_padded_vocab(&s->model.config);
    Tensor logits = rig_blank(rig, "logits", wide_dtype(&rig->ctx), shape);
    expect_ok(transformer_logits(&rig->ctx, &s->model, hidden, logits));
    rig_get(rig, tensor_columns(logits, 0, s->model.config.vocab), values);
}

/* out: logits, loss, gradient (flat) */
static void gradient_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const Task *task = what;
    Session s;
    session_open(&s, rig, task, true);
    disturb(rig, task, s.model.parameters.weight, 0, NULL);
    forward_and_loss(&s, rig, task, 0);
    get_logits(&s, rig, out[0]);
    rig_get(rig, s.model.loss_sum, out[1]);
    expect_ok(transformer_backward(&rig->ctx, &s.model));
    rig_get(rig, s.model.parameters.gradient, out[2]);
    transformer_close(&s.model);
}

/* out: loss */
static void loss_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const Task *task = what;
    Session s;
    session_open(&s, rig, task, false);
    disturb(rig, task, s.model.parameters.weight, 0, NULL);
    forward_and_loss(&s, rig, task, 0);
    rig_get(rig, s.model.loss_sum, out[0]);
    transformer_close(&s.model);
}

/* out: logits, the tokens coming a few at a time through a cache */
static void cache_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const Task *task = what;
    static const int64_t pieces[] = {5, 1, 1, 3, 1, 6};
    int64_t vocab = task->config.vocab, done = 0;
    Session s;
    Cache cache;
    session_open(&s, rig, task, false);
    expect_ok(transformer_take_cache(&rig->ctx, &s.model, 1, task->config.context, 0, &cache));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; done += pieces[i++]) {
        const Inputs inputs = {.tokens =
                                   tensor_view((int32_t *)s.tokens.data + done, I32, shape2(1, pieces[i]))};
        expect_ok(transformer_forward(&rig->ctx, &s.model, &inputs, &cache));
        get_logits(&s, rig, out[0] + done * vocab);
    }
    assert_int_equal(done, task->seq);
    transformer_close(&s.model);
}

static void set_learning_rate(Rig *rig, Tensor state, double rate) {
    float narrow = (float)rate;
    const void *value = state.dtype == F64 ? (const void *)&rate : (const void *)&narrow;
    if (!rig->ctx.measuring)
        expect_ok(rig->ctx.device->upload(rig->ctx.device, state.data, value, dtype_size(state.dtype)));
}

/* out: losses (steps), norms (steps), parameters (flat); in: room for parameters */
static void training_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Task *task = what;
    Session s;
    session_open(&s, rig, task, true);
    Parameters *p = &s.model.parameters;
    for (int64_t step = 0; step < task->steps; step++) {
        double state[ADAMW_STATE_SIZE] = {0};
        ArenaMark mark = arena_mark(&rig->ctx.arenas[ARENA_SAVED]);
        disturb(rig, task, p->weight, step, in[0]);
        forward_and_loss(&s, rig, task, step);
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

static void read_options(Task *task, const Safetensors *file) {
    const double *o = doubles_of(file, "options");
    task->learning_rate = o[0];
    task->update =
        (UpdateOptions){.beta1 = o[1], .beta2 = o[2], .eps = o[3], .weight_decay = o[4], .clip = o[5]};
}

static Task open_values(Safetensors **file) {
    Task task = {.folder = FIXTURE "model"};
    expect_ok(checkpoint_config(task.folder, &task.config));
    expect_ok(safetensors_open(FIXTURE "values.safetensors", file));
    const SafetensorsEntry *inputs = safetensors_find(*file, "inputs"),
                           *targets = safetensors_find(*file, "targets");
    assert_true(inputs && targets && inputs->type == SAFE_I32 && targets->type == SAFE_I32);
    task.steps = inputs->d[0];
    task.batch = inputs->d[1];
    task.seq = inputs->d[2];
    task.tokens = integers(inputs->count, 1);
    task.targets = integers(inputs->count, 1);
    memcpy(task.tokens, inputs->data, (size_t)inputs->bytes);
    memcpy(task.targets, targets->data, (size_t)targets->bytes);
    read_options(&task, *file);
    return task;
}

static Task open_curve(Safetensors **file) {
    Task task = {.folder = FIXTURE "start"};
    expect_ok(checkpoint_config(task.folder, &task.config));
    expect_ok(safetensors_open(FIXTURE "curve.safetensors", file));
    const SafetensorsEntry *windows = safetensors_find(*file, "windows");
    assert_true(windows && windows->type == SAFE_U8);
    task.steps = windows->d[0];
    task.batch = windows->d[1];
    task.seq = windows->d[2] - 1;
    int64_t rows = task.steps * task.batch;
    task.tokens = integers(rows * task.seq, 1);
    task.targets = integers(rows * task.seq, 1);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t t = 0; t < task.seq; t++) {
            task.tokens[row * task.seq + t] = windows->data[row * (task.seq + 1) + t];
            task.targets[row * task.seq + t] = windows->data[row * (task.seq + 1) + t + 1];
        }
    read_options(&task, *file);
    return task;
}

/* ---- bounds ---- */

enum { OUTPUTS = 3 };
typedef struct {
    int64_t counts[OUTPUTS];
    double *values[OUTPUTS];
} Result;

static Result result_of(int64_t a, int64_t b, int64_t c) {
    return (Result){{a, b, c}, {zeros(a), zeros(b), zeros(c)}};
}

static double unit_of(const Variant *variant) {
    Units units = units_of(variant);
    return fmax(units.storage, units.product);
}

/* The largest change of each output under disturbances of the weights by `unit`. */
static Result sensitivity(const Task *task, Body body, double unit, const Result *like) {
    const int64_t *n = like->counts;
    Result exact = result_of(n[0], n[1], n[2]), moved = result_of(n[0], n[1], n[2]),
           change = result_of(n[0], n[1], n[2]);
    Task disturbed = *task;
    double *room[] = {zeros(n[2])};
    rig_run_once(&specification, body, task, room, exact.values);
    for (int i = 0; i < DISTURBANCES; i++) {
        disturbed.noise = unit;
        disturbed.seed = (uint64_t)i;
        rig_run_once(&specification, body, &disturbed, room, moved.values);
        for (int o = 0; o < OUTPUTS; o++)
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

/* |got - want| <= ALLOWED |change| in the 2-norm, and what the fixture's own rounding to fp32 makes. */
static void expect_near(const double *got, const double *want, const double *change, int64_t count,
                        const char *name) {
    double *difference = zeros(count);
    for (int64_t i = 0; i < count; i++) difference[i] = got[i] - want[i];
    double off = length_of(difference, count), size = length_of(want, count);
    double bound = ALLOWED * length_of(change, count) + 0x1p-24 * size;
    if (!(off <= bound))
        fail_msg("%s: off by %.3g, but %.3g is allowed (its norm is %.3g)", name, off, bound, size);
}

static void expect_parameters_near(const Parameters *p, const double *got, const double *want,
                                   const double *change) {
    for (int i = 0; i < p->count; i++) {
        int64_t at = p->info[i].offset;
        expect_near(got + at, want + at, change + at, p->info[i].count, p->info[i].name);
    }
}

/* Numbers of successive steps: what has been off once goes on being off. */
static void expect_curve_near(const double *got, const double *want, const double *change, int64_t steps,
                              double unit, const char *name) {
    double worst = 0;
    for (int64_t i = 0; i < steps; i++) {
        worst = fmax(worst, change[i]);
        double bound = ALLOWED * (worst + unit * fabs(want[i]));
        if (!(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s of step %lld is %.9g, but must be within %.3g of %.9g", name, (long long)i, got[i],
                     bound, want[i]);
    }
}

/* ---- the tests ---- */

static void gradients_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    Task task = open_values(&file);
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    Result got = result_of(task.batch * task.seq * task.config.vocab, 1, p.size);
    rig_run(variant, gradient_body, &task, NULL, got.values);
    Result change = sensitivity(&task, gradient_body, unit_of(variant), &got);
    expect_near(got.values[0], doubles_of(file, "logits"), change.values[0], got.counts[0], "logits");
    expect_curve_near(got.values[1], doubles_of(file, "loss"), change.values[1], 1, unit_of(variant),
                      "the loss");
    expect_parameters_near(&p, got.values[2], flat_of(file, "gradient.", &p), change.values[2]);
    /* Padding of the vocabulary and gaps between parameters get no gradient. */
    for (int64_t i = task.config.vocab * task.config.width; i < p.info[0].count; i++)
        assert_true(got.values[2][i] == 0);
    parameters_close(&p);
    safetensors_close(file);
}

static void recomputation_changes_no_bit(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    Task task = open_values(&file);
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    int64_t logits = task.batch * task.seq * task.config.vocab;
    Result kept = result_of(logits, 1, p.size), again = result_of(logits, 1, p.size);
    rig_run(variant, gradient_body, &task, NULL, kept.values);
    task.recompute = true;
    rig_run(variant, gradient_body, &task, NULL, again.values);
    expect_equal(again.values[1], kept.values[1], 1, "loss");
    expect_equal(again.values[2], kept.values[2], p.size, "gradient");
    parameters_close(&p);
    safetensors_close(file);
}

static void a_cache_gives_the_same_logits(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    Task task = open_values(&file);
    task.steps = task.batch = 1;
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    Result got = result_of(task.seq * task.config.vocab, 1, p.size);
    rig_run(variant, cache_body, &task, NULL, got.values);
    Result change = sensitivity(&task, gradient_body, unit_of(variant), &got);
    expect_near(got.values[0], doubles_of(file, "logits"), change.values[0], got.counts[0], "logits");
    parameters_close(&p);
    safetensors_close(file);
}

static void five_steps_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Safetensors *file;
    Task task = open_values(&file);
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    Result got = result_of(task.steps, task.steps, p.size);
    double *room[] = {zeros(p.size)};
    rig_run(variant, training_body, &task, room, got.values);
    Result change = sensitivity(&task, training_body, unit_of(variant), &got);
    double unit = unit_of(variant);
    const double *norms = doubles_of(file, "norms");
    bool bound = false, free = false;
    for (int64_t i = 0; i < task.steps; i++) {
        bound |= norms[i] > task.update.clip;
        free |= norms[i] < task.update.clip;
    }
    assert_true(bound && free); /* the clip binds in some steps only */
    expect_curve_near(got.values[0], doubles_of(file, "losses"), change.values[0], task.steps, unit,
                      "the loss");
    expect_curve_near(got.values[1], norms, change.values[1], task.steps, unit, "the norm");
    expect_parameters_near(&p, got.values[2], flat_of(file, "updated.", &p), change.values[2]);
    parameters_close(&p);
    safetensors_close(file);
}

static void a_hundred_losses_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Safetensors *file;
    Task task = open_curve(&file);
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    Result got = result_of(task.steps, task.steps, p.size);
    double *room[] = {zeros(p.size)}, unit = unit_of(variant);
    rig_run_once(variant, training_body, &task, room, got.values);
    Result change = sensitivity(&task, training_body, unit, &got);
    assert_int_equal(task.steps, 100);
    expect_curve_near(got.values[0], doubles_of(file, "losses"), change.values[0], task.steps, unit,
                      "the loss");
    expect_curve_near(got.values[1], doubles_of(file, "norms"), change.values[1], task.steps, unit,
                      "the norm");
    assert_true(got.values[0][99] < got.values[0][0] - 1); /* it learns */
    parameters_close(&p);
    safetensors_close(file);
}

static double slope(Task *task, const double *direction, double h) {
    double up, down, *out[] = {&up}, *out2[] = {&down};
    task->direction = direction;
    task->distance = h;
    rig_run_once(&specification, loss_body, task, NULL, out);
    task->distance = -h;
    rig_run_once(&specification, loss_body, task, NULL, out2);
    task->direction = NULL;
    return (up - down) / (2 * h);
}

/* The slope of the loss along a direction, extrapolated from two central differences, is the gradient's
 * product with it. What the second difference changed is more than what the extrapolation leaves. */
static void expect_slope(Task *task, const double *direction, const double *gradient, int64_t size,
                         const char *name) {
    const double h = 1e-3;
    double product = 0, wide = slope(task, direction, h), narrow = slope(task, direction, h / 2);
    for (int64_t i = 0; i < size; i++) product += gradient[i] * direction[i];
    double found = (4 * narrow - wide) / 3, bound = fabs(narrow - wide) + 1e-14 / h;
    if (!(fabs(found - product) <= bound))
        fail_msg("along %s the loss has the slope %.12g, its gradient says %.12g; %.3g is allowed", name,
                 found, product, bound);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    Safetensors *file;
    Task task = open_values(&file);
    Parameters p;
    expect_ok(parameters_open(&task.config, &p));
    Result exact = result_of(task.batch * task.seq * task.config.vocab, 1, p.size);
    rig_run(&specification, gradient_body, &task, NULL, exact.values);
    for (int i = 0; i < DIRECTIONS; i++)
        expect_slope(&task, normals(p.size, 0.1, F64), exact.values[2], p.size, "a random direction");
    for (int i = 0; i < p.count; i++) {
        double *direction = zeros(p.size), *part = normals(p.info[i].count, 1, F64);
        memcpy(direction + p.info[i].offset, part, (size_t)p.info[i].count * sizeof *part);
        expect_slope(&task, direction, exact.values[2], p.size, p.info[i].name);
    }
    parameters_close(&p);
    safetensors_close(file);
}

#define ON_ALL(test)                                                                                         \
    {#test ", cpu naive fp64", test, NULL, test_end, (void *)&specification}, ON_EACH_VARIANT(test)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_ALL(gradients_are_pytorchs),        ON_ALL(recomputation_changes_no_bit),
        ON_ALL(a_cache_gives_the_same_logits), ON_ALL(five_steps_are_pytorchs),
        ON_ALL(a_hundred_losses_are_pytorchs), ONCE(gradients_are_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
