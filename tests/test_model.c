/* model/transformer against PyTorch (fixtures/make_gpt2.py): logits, loss, every gradient, the parameters
 * after five AdamW steps with clipping and decay, and a curve of a hundred losses; for the specification
 * in double precision, and for each form, dtype and device. Gradients of the whole model against central
 * differences. See tests/support/task.h for the bounds. */
#include "tests/support/model.h"
#include "tests/support/task.h"

#include <math.h>
#include <string.h>

#define FIXTURE "tests/fixtures/gpt2/"
#define MODEL   FIXTURE "model"
#define VALUES  FIXTURE "values.safetensors"

/* out: logits, computed a few tokens at a time with a cache */
static void cache_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    static const int64_t pieces[] = {5, 1, 1, 3, 1, 6};
    int64_t vocab = task->config.vocab, done = 0;
    TaskSession s;
    Cache cache;
    task_session_open(&s, rig, task, false);
    expect_ok(transformer_take_cache(&rig->ctx, &s.model, 1, task->config.context, 0, &cache));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; done += pieces[i++]) {
        const DeviceBatch inputs = {
            .tokens = tensor_view((int32_t *)s.tokens.data + done, I32, shape2(1, pieces[i]))};
        expect_ok(transformer_forward(&rig->ctx, &s.model, &inputs, &cache));
        task_get_logits(&s, rig, out[0] + done * vocab);
    }
    assert_int_equal(done, task->seq);
    transformer_close(&s.model);
}

static ModelTask open_curve(Safetensors **file) {
    ModelTask task = {.folder = FIXTURE "start"};
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
    task_read_options(&task, *file);
    return task;
}

/* ---- the tests ---- */

static void gradients_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    ModelTask task = task_open(MODEL, VALUES, &file);
    task_check_gradients(&task, file, variant);
    safetensors_close(file);
}

static void recomputation_changes_no_bit(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    ModelTask task = task_open(MODEL, VALUES, &file);
    task_check_recomputation(&task, variant);
    safetensors_close(file);
}

static void a_cache_gives_the_same_logits(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    ModelTask task = task_open(MODEL, VALUES, &file);
    task.steps = task.batch = 1;
    Parameters p;
    parameters_open(&task.config, &p);
    TaskResult got = task_result(task.seq * task.config.vocab, 1, p.size);
    rig_run(variant, cache_body, &task, NULL, got.values);
    TaskResult change = task_sensitivity(&task, task_gradient, task_unit(variant), &got);
    task_expect_near(got.values[0], doubles_of(file, "logits"), change.values[0], got.counts[0], "logits");
    parameters_close(&p);
    safetensors_close(file);
}

static void five_steps_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Safetensors *file;
    ModelTask task = task_open(MODEL, VALUES, &file);
    task_check_steps(&task, file, variant);
    safetensors_close(file);
}

static void a_hundred_losses_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Safetensors *file;
    ModelTask task = open_curve(&file);
    Parameters p;
    parameters_open(&task.config, &p);
    TaskResult got = task_result(task.steps, task.steps, p.size);
    double *room[] = {zeros(p.size)}, unit = task_unit(variant);
    rig_run_once(variant, task_training, &task, room, got.values);
    TaskResult change = task_sensitivity(&task, task_training, unit, &got);
    assert_int_equal(task.steps, 100);
    task_expect_curve_near(got.values[0], doubles_of(file, "losses"), change.values[0], task.steps, unit,
                           "the loss");
    task_expect_curve_near(got.values[1], doubles_of(file, "norms"), change.values[1], task.steps, unit,
                           "the norm");
    assert_true(got.values[0][99] < got.values[0][0] - 1); /* it learns */
    parameters_close(&p);
    safetensors_close(file);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    Safetensors *file;
    ModelTask task = task_open(MODEL, VALUES, &file);
    task_check_slopes(&task);
    safetensors_close(file);
}

/* The standard deviation of new weights: GPT-2's, smaller for layers that write to the residual stream;
 * BERT's; Xavier's, for each packed layer separately (torch.nn.Transformer). */
static void new_weights_have_their_spread(void **state) {
    (void)state;
    static const struct {
        const char *preset, *name;
        double std;
    } all[] = {{"gpt2-nano", "transformer.wte.weight", 0.02},
               {"gpt2-nano", "transformer.h.1.attn.c_attn.weight", 0.02},
               {"gpt2-nano", "transformer.h.1.attn.c_proj.weight", 0.02 / 2.8284271},
               {"gpt2-nano", "transformer.h.3.mlp.c_proj.weight", 0.02 / 2.8284271},
               {"bert-nano", "bert.encoder.layer.0.attention.output.dense.weight", 0.02},
               {"bert-nano", "bert.encoder.layer.1.output.dense.weight", 0.02},
               {"transformer-nano", "target_embedding.weight", 1 / 11.3137085},
               {"transformer-nano", "encoder.layers.0.self_attn.in_proj_weight", 1 / 11.3137085},
               {"transformer-nano", "decoder.layers.0.multihead_attn.in_proj_weight", 1 / 11.3137085},
               {"transformer-nano", "decoder.layers.1.linear2.weight", 1 / 17.8885438}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        Config config;
        Model model;
        expect_ok(config_preset(all[i].preset, &config));
        config.vocab = 256;
        model_open(&model, &config, F32, false);
        expect_ok(parameters_initialize(&model.ctx, &model.parameters, 1));
        const ParameterInfo *info = model.parameters.info;
        while (strcmp(info->name, all[i].name) != 0)
            assert_true(++info < model.parameters.info + model.parameters.count);
        const float *values = (const float *)model.parameters.weight.data + info->offset;
        double squares = 0;
        for (int64_t e = 0; e < info->count; e++) squares += (double)values[e] * (double)values[e];
        double spread = sqrt(squares / (double)info->count), n = (double)info->count;
        /* The standard deviation of n draws has a relative error of 1 / sqrt(2 n). */
        if (fabs(spread / all[i].std - 1) > 5 / sqrt(2 * n))
            fail_msg("%s is spread by %g, not by %g", all[i].name, spread, all[i].std);
        model_close(&model);
    }
}

/* ---- stochastic depth ---- */

enum { SAMPLES = 400, LENGTH = 2 };

/* out: the hidden states of SAMPLES rows in a model with this number of layers, whose last layer is always
 * dropped: its rate is nearly 1. */
static void deep_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    const int64_t *layers = what;
    static int32_t tokens[SAMPLES * LENGTH];
    const int32_t draw = 5;
    Transformer model;
    Config config;
    (void)in;
    expect_ok(config_preset("llama-nano",
                            &config)); // its initial values do not depend on the number of layers
    config.layers = *layers;
    config.vocab = 256;
    config_complete(&config);
    for (int i = 0; i < SAMPLES * LENGTH; i++) tokens[i] = 7 * i % 256;
    rig->ctx.training = true;
    expect_ok(transformer_open(&config, &model));
    expect_ok(transformer_take(&rig->ctx, &model, true));
    if (!rig->ctx.measuring) expect_ok(parameters_initialize(&rig->ctx, &model.parameters, 3));
    model.dropout = (Dropout){.seed = 11, .draw = rig_put_ints(rig, "draw", shape1(1), &draw)};
    model.depth = *layers > 1 ? 1 - 1e-9 : 0;
    const DeviceBatch batch = {.tokens = rig_put_ints(rig, "tokens", shape2(SAMPLES, LENGTH), tokens)};
    expect_ok(transformer_forward(&rig->ctx, &model, &batch, NULL));
    rig_get(rig, model.hidden, out[0]);
    transformer_close(&model);
}

/* Rates rise linearly from 0 in the first layer to the last layer's rate. With two layers only the first
 * remains in every sample; with three only the first remains in a quarter of the samples, those in which both
 * branches of the second, at rate 1/2, are dropped. */
static void depth_rises_by_layer(void **state) {
    (void)state;
    Config config;
    expect_ok(config_preset("llama-nano", &config));
    const int64_t count = LENGTH * config.width;
    double *values[4];
    for (int64_t layers = 1; layers <= 3; layers++) {
        values[layers] = zeros(SAMPLES * count);
        rig_run_once(&specification, deep_body, &layers, NULL, &values[layers]);
    }
    int same[4] = {0};
    for (int64_t layers = 2; layers <= 3; layers++)
        for (int64_t sample = 0; sample < SAMPLES; sample++)
            same[layers] += memcmp(values[1] + sample * count, values[layers] + sample * count,
                                   (size_t)count * sizeof(double)) == 0;
    assert_int_equal(same[2], SAMPLES);
    assert_in_range(same[3], SAMPLES / 4 - 35, SAMPLES / 4 + 35); // four standard deviations
}

#define ON_ALL(test)                                                                                         \
    {#test ", cpu naive fp64", test, NULL, test_end, (void *)&specification}, ON_EACH_VARIANT(test)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_ALL(gradients_are_pytorchs),        ON_ALL(recomputation_changes_no_bit),
        ON_ALL(a_cache_gives_the_same_logits), ON_ALL(five_steps_are_pytorchs),
        ON_ALL(a_hundred_losses_are_pytorchs), ONCE(gradients_are_slopes),
        ONCE(new_weights_have_their_spread),   ONCE(depth_rises_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
