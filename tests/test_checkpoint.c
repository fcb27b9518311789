/* model/checkpoint: saving and loading, the step folders of a run, and kills at any time. */
#include "base/bfloat16.h"
#include "base/directories.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/safetensors.h"
#include "tests/support/model.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIXTURE "tests/fixtures/gpt2"

enum { KILLS = 25 };

static void expect_same_tensor(Tensor a, Tensor b) {
    assert_int_equal(tensor_bytes(a), tensor_bytes(b));
    if (tensor_bytes(a)) assert_memory_equal(a.data, b.data, tensor_bytes(a));
}

static void expect_same(const Parameters *a, const Parameters *b) {
    expect_same_tensor(a->weight, b->weight);
    expect_same_tensor(a->master, b->master);
    expect_same_tensor(a->m, b->m);
    expect_same_tensor(a->v, b->v);
}

/* ---- saving and loading ---- */

static void a_folder_comes_back_to_the_bit(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Config config = model_small(), again;
    Model saved, loaded;
    model_open(&saved, &config, F32, true);
    model_open(&loaded, &config, F32, true);
    model_fill_all(&saved);
    memset(loaded.parameters.weight.data, 0, tensor_bytes(loaded.parameters.weight));
    TrainingState state = state_sample(), resumed;
    expect_ok(checkpoint_save(&saved.ctx, folder, &config, &saved.parameters, NULL, &state));
    expect_ok(checkpoint_config(folder, &again));
    assert_memory_equal(&config, &again, sizeof config);
    expect_ok(checkpoint_load(&loaded.ctx, folder, &loaded.parameters));
    expect_ok(checkpoint_load_state(&loaded.ctx, folder, &loaded.parameters, &resumed));
    expect_same(&saved.parameters, &loaded.parameters);

    assert_int_equal(resumed.step, state.step);
    assert_int_equal(resumed.updates, state.updates);
    assert_int_equal(resumed.tokens, state.tokens);
    assert_int_equal(resumed.position, state.position);
    assert_true(resumed.seed == state.seed);
    assert_string_equal(resumed.schedule, state.schedule);
    assert_int_equal(resumed.steps, state.steps);
    assert_int_equal(resumed.warmup, state.warmup);
    assert_true(resumed.learning_rate == state.learning_rate);
    assert_true(resumed.min_learning_rate == state.min_learning_rate);
    model_close(&saved);
    model_close(&loaded);
}

/* The master weights are what is saved; the bf16 weights are their rounding. */
static void bf16_comes_back_to_the_bit(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Config config = model_small();
    Model saved, loaded, plain;
    model_open(&saved, &config, BF16, true);
    model_open(&loaded, &config, BF16, true);
    model_open(&plain, &config, F32, false);
    model_fill_all(&saved);
    TrainingState state = state_sample();
    expect_ok(checkpoint_save(&saved.ctx, folder, &config, &saved.parameters, NULL, &state));
    expect_ok(checkpoint_load(&loaded.ctx, folder, &loaded.parameters));
    expect_ok(checkpoint_load_state(&loaded.ctx, folder, &loaded.parameters, &state));
    expect_same_tensor(saved.parameters.master, loaded.parameters.master);
    expect_same_tensor(saved.parameters.m, loaded.parameters.m);
    expect_same_tensor(saved.parameters.v, loaded.parameters.v);
    const float *master = saved.parameters.master.data;
    const uint16_t *weight = loaded.parameters.weight.data;
    for (int64_t i = 0; i < saved.parameters.size; i++)
        assert_int_equal(weight[i], bfloat16_from_float(master[i]));
    expect_ok(checkpoint_load(&plain.ctx, folder, &plain.parameters)); /* to infer in fp32 */
    expect_same_tensor(saved.parameters.master, plain.parameters.weight);
    model_close(&saved);
    model_close(&loaded);
    model_close(&plain);
}

/* GPT-2's names and layouts, read without the code that wrote them. */
static void the_layout_is_hugging_faces(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Config config = model_small();
    Model model;
    model_open(&model, &config, F32, false);
    model_fill(&model, model.parameters.weight, 0);
    expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, NULL));
    assert_false(path_exists(inside(folder, "training_state.safetensors")));
    Safetensors *file;
    expect_ok(safetensors_open(inside(folder, "model.safetensors"), &file));
    assert_string_equal(safetensors_note_value(file, "format"), "pt");
    assert_int_equal(safetensors_count(file), 2 * 12 + 4);
    assert_null(safetensors_find(file, "lm_head.weight"));
    const SafetensorsEntry *table = safetensors_find(file, "transformer.wte.weight");
    assert_int_equal(table->d[0], 131);
    assert_int_equal(table->d[1], 24);
    const SafetensorsEntry *matrix = safetensors_find(file, "transformer.h.1.mlp.c_fc.weight");
    assert_int_equal(matrix->d[0], 24);
    assert_int_equal(matrix->d[1], 50);
    const float *in_memory = model.parameters.stack.blocks[1].expand.weight.weight.data,
                *token = model.parameters.stack.token.weight.data;
    for (int64_t in = 0; in < 24; in++)
        for (int64_t out = 0; out < 50; out++) {
            float value;
            expect_ok(safetensors_read(matrix, in * 50 + out, 1, &value));
            assert_true(value == in_memory[out * 24 + in]);
        }
    assert_memory_equal(table->data, token, 131 * 24 * sizeof(float));
    safetensors_close(file);
    model_close(&model);
}

static void transformers_shards_are_read(void **state) {
    (void)state;
    Config config;
    Model model;
    expect_ok(checkpoint_config(FIXTURE "/start", &config));
    model_open(&model, &config, F32, false);
    expect_ok(checkpoint_load(&model.ctx, FIXTURE "/start", &model.parameters));
    /* As GPT-2 starts: norms 1, biases 0, tables of deviation 0.02. */
    const float *norm = model.parameters.stack.final_norm.weight.weight.data,
                *table = model.parameters.stack.token.weight.data;
    double squares = 0;
    int64_t count = config.vocab * config.width;
    for (int64_t i = 0; i < config.width; i++) assert_true(norm[i] == 1);
    for (int64_t i = 0; i < count; i++) squares += (double)table[i] * (double)table[i];
    assert_true(fabs(sqrt(squares / (double)count) - 0.02) < 0.001);
    model_close(&model);
}

static void a_tokenizer_goes_with_the_model(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Config config = model_small();
    Model model;
    Tokenizer *tokenizer, *again;
    model_open(&model, &config, F32, false);
    expect_ok(tokenizer_open("bytes", &tokenizer));
    expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, tokenizer, NULL));
    expect_ok(tokenizer_open(folder, &again));
    assert_true(tokenizer_hash(tokenizer) == tokenizer_hash(again));
    tokenizer_free(tokenizer);
    tokenizer_free(again);
    model_close(&model);
}

static void a_failed_save_leaves_nothing(void **scratch) {
    Config config = model_small();
    Model model;
    model_open(&model, &config, F32, false);
    write_text_file(inside(*scratch, "file"), "in the way");
    expect_error(
        checkpoint_save(&model.ctx, inside(*scratch, "file/model"), &config, &model.parameters, NULL, NULL),
        ERROR_FILE, "file");
    config.kv_heads = 1;
    expect_error(
        checkpoint_save(&model.ctx, inside(*scratch, "model"), &config, &model.parameters, NULL, NULL),
        ERROR_USAGE, "cannot describe");
    PathList list;
    expect_ok(directory_list(*scratch, &list));
    assert_int_equal(list.count, 1);
    path_list_free(&list);
    model_close(&model);
}

/* ---- step folders ---- */

static void make_step(const char *out, const char *name, bool whole) {
    const char *folder = inside(out, name);
    expect_ok(directory_make(folder));
    write_text_file(inside(folder, "config.json"), "{}");
    if (whole) write_text_file(inside(folder, "model.safetensors"), "");
}

static void expect_latest(const char *out, const char *name) {
    char *folder;
    expect_ok(checkpoint_latest(out, &folder));
    if (name) {
        assert_non_null(folder);
        assert_string_equal(path_name(folder), name);
    } else {
        assert_null(folder);
    }
    memory_free(folder);
}

static void the_latest_is_found_and_the_rest_pruned(void **scratch) {
    const char *out = *scratch;
    char *folder = checkpoint_step_folder(out, 100);
    assert_string_equal(path_name(folder), "step-00000100");
    memory_free(folder);
    expect_latest(inside(out, "nowhere"), NULL);
    expect_latest(out, NULL);
    make_step(out, "step-00000009", true);
    make_step(out, "step-00000100", true);
    make_step(out, "step-00000020", true);
    expect_latest(out, "step-00000100");
    make_step(out, "step-123456789", true); /* longer, and larger although it sorts first as text */
    expect_latest(out, "step-123456789");
    make_step(out, "step-223456789", false);
    make_step(out, "step-323456789.tmp", true);
    make_step(out, "step-423456789x", true);
    make_step(out, "step-5", true);
    make_step(out, "step-00000020.old", true);
    make_step(out, "step-00000021.old", true); /* the only copy: stays */
    make_step(out, "best", true);
    expect_latest(out, "step-123456789");
    expect_ok(checkpoint_prune(out, 0, INT64_MAX, 2));
    static const char *const left[] = {"best",           "step-00000021.old", "step-00000100",
                                       "step-123456789", "step-423456789x",   "step-5"};
    PathList list;
    expect_ok(directory_list(out, &list));
    assert_int_equal(list.count, sizeof left / sizeof *left);
    for (int64_t i = 0; i < list.count; i++) assert_string_equal(path_name(list.paths[i]), left[i]);
    path_list_free(&list);
    expect_ok(checkpoint_prune(out, 0, INT64_MAX, 0));
    expect_latest(out, "step-123456789");
    assert_true(path_exists(inside(out, "step-00000100")));
    /* Neither checkpoints later than the last, which is always kept, nor earlier than the first. */
    make_step(out, "step-00000101", true);
    expect_ok(checkpoint_prune(out, 101, 101, 1));
    assert_true(path_exists(inside(out, "step-00000100")));
    expect_ok(checkpoint_prune(out, 0, 101, 1));
    assert_false(path_exists(inside(out, "step-00000100")));
    assert_true(path_exists(inside(out, "step-00000101")));
    expect_latest(out, "step-123456789");
    make_step(out, "step-00000102", false);
    make_step(out, "step-00000102.tmp", true);
    expect_ok(checkpoint_remove_after(out, 101));
    expect_latest(out, "step-00000101");
    assert_false(path_exists(inside(out, "step-00000102")) || path_exists(inside(out, "step-00000102.tmp")));
    assert_true(path_exists(inside(out, "best")));
}

/* A link to itself stands for a folder that cannot be read, as on a failing disk: it is neither skipped nor
 * removed. */
static void what_cannot_be_seen_is_not_absent(void **scratch) {
    const char *out = *scratch;
    char *folder;
    make_step(out, "step-00000001", true);
    make_step(out, "step-00000002", true);
    make_step(out, "step-00000003", true);
    const char *config = inside(out, "step-00000002/config.json");
    assert_int_equal(remove(config), 0);
    assert_int_equal(symlink("config.json", config), 0);
    expect_error(checkpoint_prune(out, 0, 3, 1), ERROR_FILE, "step-00000002/config.json: Too many levels");
    assert_true(path_exists(inside(out, "step-00000002")) && path_exists(inside(out, "step-00000001")));
    expect_latest(out, "step-00000003");
    expect_ok(directory_remove(inside(out, "step-00000003")));
    expect_error(checkpoint_latest(out, &folder), ERROR_FILE, "step-00000002/config.json: Too many levels");
}

/* ---- kills ---- */

static void set_all(Model *model, float value) {
    for (int i = 0; i < model->parameters.count; i++) {
        int64_t count = model->parameters.info[i].count;
        float *values = malloc((size_t)count * sizeof *values);
        for (int64_t j = 0; j < count; j++) values[j] = value;
        expect_ok(parameter_write(&model->ctx, &model->parameters, i, values));
        expect_ok(
            values_write(&model->ctx, model->parameters.m, model->parameters.info[i].offset, count, values));
        free(values);
    }
}

/* Saves a step in its own folder and, replacing the previous one, in `same`. Writes to the pipe in
 * between. */
static void save_step(Model *model, const char *out, int64_t step, int report) {
    char *folder = checkpoint_step_folder(out, step);
    TrainingState state = {.step = step};
    set_all(model, (float)step);
    expect_ok(checkpoint_save(&model->ctx, folder, &model->config, &model->parameters, NULL, &state));
    memory_free(folder);
    if (report >= 0 && write(report, &step, sizeof step) != sizeof step) _exit(1);
    const char *same = inside(out, "same");
    expect_ok(checkpoint_save(&model->ctx, same, &model->config, &model->parameters, NULL, &state));
    expect_ok(checkpoint_prune(out, 0, step, 2));
}

static void save_until_killed(Model *model, const char *out, int64_t step, int report) {
    for (;; step++) save_step(model, out, step, report);
}

/* Checks that the folder holds one complete step, and returns it. */
static int64_t expect_whole(Model *model, const char *folder) {
    TrainingState state;
    expect_ok(checkpoint_load(&model->ctx, folder, &model->parameters));
    expect_ok(checkpoint_load_state(&model->ctx, folder, &model->parameters, &state));
    for (int i = 0; i < model->parameters.count; i++) {
        const ParameterInfo *info = &model->parameters.info[i];
        const float *weight = info->parameter->weight.data;
        const float *m = (const float *)model->parameters.m.data + info->offset;
        for (int64_t j = 0; j < info->count; j++) {
            bool padding = j >= info->rows * (info->count / info->shape.d[0]);
            assert_true(weight[j] == (padding ? 0 : (float)state.step));
            assert_true(m[j] == (float)state.step);
        }
    }
    return state.step;
}

/* Lets a child save from `step` on and kills it within `longest` seconds. Returns the last step that it
 * reported. */
static int64_t save_and_kill(Model *model, const char *out, int64_t step, uint64_t round, double longest) {
    int report[2], how;
    assert_int_equal(pipe(report), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(report[0]);
        save_until_killed(model, out, step, report[1]);
    }
    close(report[1]);
    usleep((useconds_t)(1e6 * longest * random_uniform(1, 0, round)));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how)); /* and the child has not ended with an error */
    int64_t reported, last = step - 1;
    while (read(report[0], &reported, sizeof reported) == sizeof reported) last = reported;
    close(report[0]);
    return last;
}

/* After a killed save there is the last reported step, or the next one, published but not yet reported. */
static int64_t expect_nothing_lost(Model *model, const char *out, int64_t reported) {
    char *latest;
    expect_ok(checkpoint_latest(out, &latest));
    assert_non_null(latest);
    int64_t step = expect_whole(model, latest), same = expect_whole(model, inside(out, "same"));
    assert_true(step == reported || step == reported + 1);
    assert_true(same <= step); /* it lags behind if the child was killed between the two saves */
    memory_free(latest);
    return step;
}

static void kills_lose_nothing(void **scratch) {
    const char *out = *scratch;
    Config config = model_small();
    Model model;
    model_open(&model, &config, F32, true);
    double start = device_clock();
    save_step(&model, out, 1, -1);
    double round_trip = device_clock() - start;
    int64_t step = 1;
    for (uint64_t round = 0; round < KILLS; round++) {
        int64_t reported = save_and_kill(&model, out, step + 1, round, 2 * round_trip);
        step = expect_nothing_lost(&model, out, reported);
    }
    assert_true(step > 1);
    save_step(&model, out, step + 1, -1); /* removes what killed saves left */
    PathList list;
    expect_ok(directory_list(out, &list));
    assert_int_equal(list.count, 2 + 1); /* two steps, and `same` */
    path_list_free(&list);
    model_close(&model);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_folder_comes_back_to_the_bit),
        IN_SCRATCH(bf16_comes_back_to_the_bit),
        IN_SCRATCH(the_layout_is_hugging_faces),
        cmocka_unit_test(transformers_shards_are_read),
        IN_SCRATCH(a_tokenizer_goes_with_the_model),
        IN_SCRATCH(a_failed_save_leaves_nothing),
        IN_SCRATCH(the_latest_is_found_and_the_rest_pruned),
        IN_SCRATCH(what_cannot_be_seen_is_not_absent),
        IN_SCRATCH(kills_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
