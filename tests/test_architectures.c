/* BERT, the encoder-decoder (fixtures/make_architectures.py) and the Llama family (fixtures/make_llama.py)
 * against PyTorch: logits, loss, every gradient, the parameters after five AdamW steps, with rows of
 * different lengths, one of them all padding; for the specification in double precision, and for each form,
 * dtype and device. Gradients of the whole models against central differences. See tests/support/task.h for
 * the bounds. */
#include "base/directories.h"
#include "base/memory.h"
#include "tests/support/model.h"
#include "tests/support/task.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/fixtures/"
enum { MODELS = 10 };
static const char *const models[MODELS] = {FIXTURES "bert/model",         FIXTURES "transformer/after",
                                           FIXTURES "transformer/before", FIXTURES "transformer/final",
                                           FIXTURES "llama/llama",        FIXTURES "llama/llama3",
                                           FIXTURES "llama/linear",       FIXTURES "llama/qwen2",
                                           FIXTURES "llama/qwen3",        FIXTURES "llama/mistral"};

static ModelTask open_model(int i, Safetensors **file) {
    char path[100];
    snprintf(path, sizeof path, "%s/values.safetensors", models[i]);
    return task_open(models[i], path, file);
}

static void gradients_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        task_check_gradients(&task, file, variant);
        safetensors_close(file);
    }
}

static void recomputation_changes_no_bit(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        task_check_recomputation(&task, variant);
        safetensors_close(file);
    }
}

static void five_steps_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        task_check_steps(&task, file, variant);
        safetensors_close(file);
    }
}

/* Differences would step over a ReLU's kinks. */
static void smooth(Config *config) {
    if (config->activation == ACTIVATION_RELU) config->activation = ACTIVATION_GELU;
}

static void gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        smooth(&task.config);
        task_check_slopes(&task);
        safetensors_close(file);
    }
}

/* PyTorch draws other dropout masks, so it cannot serve as a reference: gradients are compared with
 * differences of the loss under the same masks, and every form with the specification. */
typedef struct {
    uint32_t instances[100];
    int count;
} Sites;

/* Every place with dropout must drop elements, with its own instance number. */
static void meet(Sites *sites, const Dropout *dropout) {
    assert_true(dropout_on(dropout));
    for (int i = 0; i < sites->count; i++) assert_int_not_equal(sites->instances[i], dropout->instance);
    sites->instances[sites->count++] = dropout->instance;
}

static void meet_norm(Sites *sites, const NormForward *n) {
    if (!tensor_empty(n->skip)) meet(sites, &n->dropout);
}

static void meet_stack(Sites *sites, const Stack *s) {
    meet(sites, &s->embedding_dropout.dropout);
    for (int64_t i = 0; i < s->pass.layers; i++) {
        const Block *b = &s->blocks[i];
        meet(sites, &b->attention.dropout);
        meet_norm(sites, &b->norm1);
        meet_norm(sites, &b->norm2);
        if (tensor_empty(s->pass.batch.memory)) continue;
        meet(sites, &b->cross.dropout);
        meet_norm(sites, &b->cross_norm);
    }
    meet_norm(sites, &s->final_norm);
}

static void sites_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    TaskSession s;
    Sites sites = {.count = 0};
    task_session_open(&s, rig, task, true);
    task_forward(&s, rig, task, 0);
    meet_stack(&sites, &s.model.stack);
    if (task->config.encoder_layers) meet_stack(&sites, &s.model.encoder);
    out[0][0] = sites.count;
    transformer_close(&s.model);
}

/* The places: each stack's embedding, each branch's residual, each attention's probabilities. */
static void every_site_drops(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        const Config *c = &task.config;
        double count, *out[] = {&count};
        task.dropout = 0.5;
        rig_run_once(&specification, sites_body, &task, NULL, out);
        int64_t pairs = c->encoder_layers > 0;
        assert_int_equal(count, 1 + pairs + (3 + 2 * pairs) * c->layers + 3 * c->encoder_layers);
        safetensors_close(file);
    }
}

static void dropouts_gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        smooth(&task.config);
        task.dropout = 0.3;
        task_check_slopes(&task);
        safetensors_close(file);
    }
}

/* A form's logits and gradient against the specification's; and once more, recomputed. */
static void expect_specification(const Variant *variant, ModelTask *task) {
    Parameters p;
    parameters_open(&task->config, &p);
    int64_t logits = task->batch * task->seq * task->config.vocab;
    TaskResult want = task_result(logits, 1, p.size), got = task_result(logits, 1, p.size);
    rig_run(&specification, task_gradient, task, NULL, want.values);
    rig_run(variant, task_gradient, task, NULL, got.values);
    TaskResult change = task_sensitivity(task, task_gradient, task_unit(variant), &got);
    task_expect_near(got.values[0], want.values[0], change.values[0], logits, "logits");
    task_expect_near(got.values[2], want.values[2], change.values[2], p.size, "gradient");
    for (task->recompute = RECOMPUTE_HIDDEN; task->recompute <= RECOMPUTE_BLOCKS; task->recompute++) {
        rig_run(variant, task_gradient, task, NULL, want.values);
        expect_equal(want.values[2], got.values[2], p.size, "gradient with recomputation");
    }
    parameters_close(&p);
}

static void every_form_draws_the_same_masks(void **state) {
    const Variant *variant = test_variant(state, OP_DROPOUT);
    for (int i = 0; i < MODELS; i++) {
        Safetensors *file;
        ModelTask task = open_model(i, &file);
        task.dropout = 0.2;
        expect_specification(variant, &task);
        safetensors_close(file);
    }
}

/* transformers lets the tokens of such a row attend to one another, so PyTorch's fixtures of BERT have
 * none. */
static void a_row_of_padding_attends_to_nothing(void **state) {
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    ModelTask task = open_model(0, &file);
    task.lengths[1] = 0;
    expect_specification(variant, &task);
    safetensors_close(file);
}

/* ---- a BertModel as transformers saves it, with a pooler, and names without "bert." ---- */

static void encoder_body(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    TaskSession s;
    task_session_open(&s, rig, task, false);
    const Config *c = &task->config;
    const Shape rows = shape2(task->batch, task->seq);
    const DeviceBatch inputs = {.tokens = tensor_reshape(s.tokens, rows),
                                .segments = tensor_reshape(s.segments, rows),
                                .lengths = tensor_reshape(s.lengths, shape1(task->batch))};
    Tensor pooled = rig_blank(rig, "pooled", rig->ctx.dtype, shape2(task->batch, c->width));
    expect_ok(transformer_forward(&rig->ctx, &s.model, &inputs, NULL));
    expect_ok(transformer_pool(&rig->ctx, &s.model, s.model.hidden, pooled));
    rig_get(rig, s.model.hidden, out[0]);
    rig_get(rig, pooled, out[1]);
    transformer_close(&s.model);
}

/* fp32 to 1e-5, as PyTorch's own forms differ among themselves; the other dtypes by their unit. */
static void hidden_states_are_transformers(void **state) {
    static const char folder[] = FIXTURES "bert/encoder", path[] = FIXTURES "bert/encoder/values.safetensors";
    static const char *const names[] = {"hidden", "pooled"};
    const Variant *variant = test_variant(state, OP_ATTENTION);
    Safetensors *file;
    ModelTask task = task_open(folder, path, &file);
    assert_true(task.config.pooler && !task.config.head_transform);
    int64_t counts[] = {task.batch * task.seq * task.config.width, task.batch * task.config.width};
    double *got[] = {zeros(counts[0]), zeros(counts[1])};
    rig_run(variant, encoder_body, &task, NULL, got);
    for (int o = 0; o < 2; o++) {
        double *want = doubles_of(file, names[o]), *bound = zeros(counts[o]);
        double unit = task_unit(variant), largest = 0;
        for (int64_t i = 0; i < counts[o]; i++) largest = fmax(largest, fabs(want[i]));
        for (int64_t i = 0; i < counts[o]; i++) bound[i] = unit <= 0x1p-24 ? 1e-5 : 40 * unit * largest;
        expect_close(got[o], want, bound, counts[o], "%s: %s", variant->name, names[o]);
    }
    safetensors_close(file);
}

/* Saved folders equal loaded ones, by name and bit for bit, including the config. */
static void folders_are_saved_as_they_were(void **state) {
    for (int i = 0; i < MODELS; i++) {
        Model model;
        Config config, again;
        const char *folder = inside(*state, "saved");
        char is[PATH_MAX];
        expect_ok(checkpoint_config(models[i], &config));
        model_open(&model, &config, F32, false);
        expect_ok(checkpoint_load(&model.ctx, models[i], &model.parameters));
        expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, NULL));
        expect_ok(checkpoint_config(folder, &again));
        assert_memory_equal(&config, &again, sizeof config);
        snprintf(is, sizeof is, "%s/model.safetensors", folder);
        Safetensors *before, *after;
        expect_ok(safetensors_open_folder(models[i], &before));
        expect_ok(safetensors_open(is, &after));
        assert_int_equal(safetensors_count(after), safetensors_count(before));
        for (int64_t k = 0; k < safetensors_count(after); k++) {
            const SafetensorsEntry *entry = safetensors_entry(after, k),
                                   *same = safetensors_find(before, entry->name);
            if (!same) fail_msg("%s: %s was not there before", models[i], entry->name);
            assert_int_equal(entry->bytes, same->bytes);
            assert_memory_equal(entry->data, same->data, (size_t)entry->bytes);
        }
        safetensors_close(before);
        safetensors_close(after);
        model_close(&model);
    }
}

typedef struct {
    SafetensorsEntry entries[100];
    char names[100][96];
    int count;
} Renamed;

/* As old folders have them: some names with "bert." and some without, norms with gamma and beta, and no
 * pooler though config.json's class has one. */
static void rename_tensors(const Safetensors *from, Renamed *r) {
    for (int64_t i = 0; i < safetensors_count(from); i++) {
        const SafetensorsEntry *entry = safetensors_entry(from, i);
        const char *norm = strstr(entry->name, "LayerNorm.");
        char *name = r->names[r->count];
        if (strstr(entry->name, "pooler")) continue;
        snprintf(name, sizeof *r->names, "%s%s", i % 2 ? "bert." : "", entry->name);
        if (norm)
            strcpy(strstr(name, "LayerNorm.") + strlen("LayerNorm."),
                   strstr(norm, "weight") ? "gamma" : "beta");
        r->entries[r->count] = *entry;
        r->entries[r->count++].name = name;
    }
}

static void older_names_are_read(void **state) {
    const char *folder = inside(*state, "older");
    Renamed *r = calloc(1, sizeof *r);
    Safetensors *from;
    SafetensorsWriter *writer;
    char path[PATH_MAX], *text;
    int64_t length;
    expect_ok(safetensors_open(FIXTURES "bert/encoder/model.safetensors", &from));
    rename_tensors(from, r);
    expect_ok(directory_make(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    expect_ok(safetensors_writer_open(path, r->entries, r->count, NULL, 0, &writer));
    for (int i = 0; i < r->count; i++)
        expect_ok(safetensors_writer_append(writer, r->entries[i].data, r->entries[i].bytes));
    expect_ok(safetensors_writer_close(writer));
    expect_ok(file_read(FIXTURES "bert/encoder/config.json", 1 << 16, &text, &length));
    snprintf(path, sizeof path, "%s/config.json", folder);
    expect_ok(file_write(path, text, length));
    memory_free(text);
    safetensors_close(from);
    free(r);
    Model model;
    Config config;
    expect_ok(checkpoint_config(folder, &config));
    assert_true(!config.pooler && !config.head_transform);
    model_open(&model, &config, F32, false);
    expect_ok(checkpoint_load(&model.ctx, folder, &model.parameters));
    model_close(&model);
}

#define ON_ALL(test)                                                                                         \
    {#test ", cpu naive fp64", test, NULL, test_end, (void *)&specification}, ON_EACH_VARIANT(test)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_ALL(gradients_are_pytorchs),
        ON_ALL(recomputation_changes_no_bit),
        ON_ALL(five_steps_are_pytorchs),
        ONCE(gradients_are_slopes),
        ONCE(every_site_drops),
        ONCE(dropouts_gradients_are_slopes),
        ON_EACH_VARIANT(hidden_states_are_transformers),
        cmocka_unit_test_setup_teardown(older_names_are_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folders_are_saved_as_they_were, scratch_setup, scratch_teardown),
        ON_EACH_VARIANT(every_form_draws_the_same_masks),
        ON_EACH_VARIANT(a_row_of_padding_attends_to_nothing)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
