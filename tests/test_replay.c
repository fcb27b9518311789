/* A training step launched as a graph equals the step launched kernel by kernel, bit for bit, while inputs of
 * the same shape change from step to step: tokens, lengths, number of targets, masked positions, dropout. For
 * GPT, BERT and the encoder-decoder. All forms and devices draw the same masks, so their losses agree. */
#include "base/random.h"
#include "run/trainer.h"
#include "tests/support/rig.h"

#include <math.h>
#include <string.h>

enum { STEPS = 6, BATCH = 3, SEQ = 20, SOURCE = 14, ACCUM = 2, VOCAB = 131, ALL = (1 << OP_COUNT) - 1 };
enum { SEED = 9 };

typedef struct {
    Backend backend;
    Dtype dtype;
    uint32_t fuses;
    bool graphs;
} How;

typedef struct {
    Task task;
    double dropout;
    Recompute recompute;
} What;

static Config small(Task task) {
    Config config;
    expect_ok(config_preset(task == TASK_SEQUENCE       ? "transformer-nano"
                            : task == TASK_MASKED_TOKEN ? "bert-nano"
                                                        : "gpt2-nano",
                            &config));
    config.layers = 2;
    config.encoder_layers = task == TASK_SEQUENCE ? 2 : 0;
    config.heads = config.kv_heads = 2;
    config.head_size = 32;
    config.width = 64;
    config.hidden = 128;
    config.context = SEQ;
    config.vocab = VOCAB; // padded
    return config;
}

/* ---- batches ---- */

typedef struct {
    Task task;
    int64_t step;
    int32_t inputs[ACCUM][BATCH * SEQ], targets[ACCUM][BATCH * SEQ], source[ACCUM][BATCH * SOURCE];
    int32_t lengths[ACCUM][BATCH], source_lengths[ACCUM][BATCH];
} Source;

static int32_t draw(const Source *s, int64_t index, uint64_t what, int64_t i, uint64_t below) {
    const uint64_t stream = ((uint64_t)(s->step * ACCUM + index) << 8) + what;
    return (int32_t)random_below(3, stream, (uint64_t)i, below);
}

/* Rows of 1 to SEQ tokens; a GPT's have SEQ. All tokens have a target or, in a masked-token batch, every
 * ninth from a random offset on. Returns the number of targets. */
static int64_t fill(Source *s, int64_t index) {
    const bool masked = s->task == TASK_MASKED_TOKEN;
    int64_t count = 0;
    for (int64_t row = 0; row < BATCH; row++) {
        const int32_t length = s->task == TASK_NEXT_TOKEN ? SEQ : 1 + draw(s, index, 0, row, SEQ);
        const int32_t first = draw(s, index, 1, row, 9);
        s->lengths[index][row] = length;
        s->source_lengths[index][row] = 1 + draw(s, index, 2, row, SOURCE);
        for (int64_t i = 0; i < SEQ; i++) {
            const int64_t at = row * SEQ + i;
            const bool counts = i < length && (!masked || i % 9 == first);
            s->inputs[index][at] = draw(s, index, 3, at, VOCAB);
            s->targets[index][at] = counts ? draw(s, index, 4, at, VOCAB) : -1;
            count += counts;
        }
        for (int64_t i = 0; i < SOURCE; i++)
            s->source[index][row * SOURCE + i] = draw(s, index, 5, row * SOURCE + i, VOCAB);
    }
    return count;
}

static Status fetch(void *source, int64_t index, Batch *batch) {
    Source *s = source;
    int64_t counts[ACCUM];
    for (int64_t i = 0; i < ACCUM; i++) counts[i] = fill(s, i);
    *batch = (Batch){.inputs = s->inputs[index],
                     .targets = s->targets[index],
                     .lengths = s->task == TASK_NEXT_TOKEN ? NULL : s->lengths[index],
                     .tokens = counts[index],
                     .step_tokens = counts[0] + counts[1]};
    if (s->task != TASK_SEQUENCE) return OK;
    batch->source = s->source[index];
    batch->source_lengths = s->source_lengths[index];
    return OK;
}

/* ---- runs ---- */

static void open_trainer(const How *how, const What *what, Trainer *t) {
    Config config = small(what->task);
    const Session session = {.device = test_device(how->backend),
                             .dtype = how->dtype,
                             .fuses = how->fuses,
                             .graphs = how->graphs,
                             .config = config};
    expect_ok(trainer_open(t, &session, NULL));
    t->batch = BATCH;
    t->seq = SEQ;
    t->source_seq = what->task == TASK_SEQUENCE ? SOURCE : 0;
    t->accum = ACCUM;
    t->smoothing = 0.1;
    t->dropout = what->dropout;
    t->seed = SEED;
    t->model.recompute = what->recompute;
    t->update = (UpdateOptions){0.9, 0.95, 1e-8, 0.1, 1};
    expect_ok(trainer_measure(t, NULL));
    expect_ok(trainer_allocate(t));
    expect_ok(parameters_initialize(&t->ctx, &t->model.parameters, 1));
}

/* Loss and gradient norm of each step. */
static void train(const How *how, const What *what, double results[2 * STEPS]) {
    static Source source;
    Trainer t;
    source.task = what->task;
    open_trainer(how, what, &t);
    for (source.step = 0; source.step < STEPS; source.step++) {
        StepResult result;
        t.ctx.step = source.step;
        expect_ok(trainer_step(&t, fetch, &source, 1e-3, &result));
        assert_false(result.skipped);
        results[2 * source.step] = result.loss;
        results[2 * source.step + 1] = result.norm;
        Validation validation;
        if (source.step == 3) expect_ok(trainer_evaluate(&t, fetch, &source, ACCUM, &validation));
    }
    assert_int_equal(t.passes[0][0].forward.graph && t.updated.graph,
                     how->graphs && how->backend == BACKEND_CUDA);
    trainer_close(&t);
}

static const Task tasks[] = {TASK_NEXT_TOKEN, TASK_MASKED_TOKEN, TASK_SEQUENCE};
enum { TASKS = sizeof tasks / sizeof *tasks };

static void graphs_change_no_bit(void **state) {
    (void)state;
    if (!test_device(BACKEND_CUDA)) skip();
    for (int o = 0; o < TASKS; o++)
        for (int k = 0; k < 8; k++) {
            const What what = {tasks[o], k % 2 ? 0.2 : 0, k / 2 % 2 ? RECOMPUTE_HIDDEN : RECOMPUTE_NONE};
            How how = {BACKEND_CUDA, k / 4 ? BF16 : F32, ALL, false};
            double eager[2 * STEPS], graph[2 * STEPS];
            train(&how, &what, eager);
            how.graphs = true;
            train(&how, &what, graph);
            assert_memory_equal(eager, graph, sizeof eager);
        }
}

/* Rounding changes a loss by a relative 1e-6; another mask, or another number of targets, by a tenth. */
static void expect_near(const How *how, const What *what, const double *want) {
    double got[2 * STEPS];
    train(how, what, got);
    for (int i = 0; i < 2 * STEPS; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-3 * fabs(want[i])))
            fail_msg("%s of step %d is %.9g, but should be about %.9g", i % 2 ? "norm" : "loss", i / 2,
                     got[i], want[i]);
}

static void every_form_goes_the_same_way(void **state) {
    (void)state;
    for (int o = 0; o < TASKS; o++) {
        const What what = {tasks[o], 0.2, RECOMPUTE_NONE}, again = {tasks[o], 0.2, RECOMPUTE_HIDDEN};
        const How naive = {BACKEND_CPU, F32, 0, false}, fused = {BACKEND_CPU, F32, ALL, true};
        double want[2 * STEPS];
        train(&naive, &what, want);
        expect_near(&fused, &what, want);
        expect_near(&fused, &again, want);
        if (!test_device(BACKEND_CUDA)) continue;
        expect_near(&(How){BACKEND_CUDA, F32, 0, false}, &what, want);
        expect_near(&(How){BACKEND_CUDA, F32, ALL, true}, &what, want);
    }
}

typedef struct {
    Source source;
    const Trainer *trainer;
    int32_t numbers[STEPS * ACCUM + 1]; // the previous micro-batch's masks
    int count;
} Watched;

static Status watch(void *context, int64_t index, Batch *batch) {
    Watched *w = context;
    w->numbers[w->count++] = *(const int32_t *)w->trainer->draw.data;
    return fetch(&w->source, index, batch);
}

/* Masks are drawn by number: no two micro-batches, of one step or of two, share one. */
static void each_micro_batch_has_its_own_masks(void **state) {
    (void)state;
    static Watched w;
    Trainer t;
    StepResult result;
    open_trainer(&(How){BACKEND_CPU, F32, ALL, false}, &(What){TASK_NEXT_TOKEN, 0.2, RECOMPUTE_NONE}, &t);
    w.trainer = &t;
    for (t.ctx.step = 1; t.ctx.step <= STEPS; t.ctx.step++) {
        w.source.step = t.ctx.step;
        expect_ok(trainer_step(&t, watch, &w, 1e-3, &result));
    }
    w.numbers[w.count] = *(const int32_t *)t.draw.data;
    assert_int_equal(w.count, STEPS * ACCUM);
    for (int i = 1; i <= w.count; i++)
        for (int j = 1; j < i; j++) assert_int_not_equal(w.numbers[i], w.numbers[j]);
    trainer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_change_no_bit),
                                       cmocka_unit_test(every_form_goes_the_same_way),
                                       cmocka_unit_test(each_micro_batch_has_its_own_masks)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
