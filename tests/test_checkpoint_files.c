/* model/checkpoint: files written by other programs, and files that do not match the model. */
#include "base/bfloat16.h"
#include "base/directories.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "tests/support/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIXTURE "tests/fixtures/gpt2"

/* ---- other dtypes and layouts, and files that do not match ---- */

/* The change in a rewritten copy of the fixture's file. */
typedef struct {
    bool bare; // names without "transformer."
    SafetensorsType type;
    const char *without; // an entry that is left out
    const char *extra;   // an entry of one value that is added
    const char *scalar;  // an entry whose shape becomes ()
    int head;            // 1: the token table again, as the head; 2: another table
} Change;

static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent <= 0) return (uint16_t)(bits >> 16 & 0x8000); /* too small for binary16: zero */
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 1023));
}

static void append_values(SafetensorsWriter *writer, const SafetensorsEntry *entry, int64_t count,
                          SafetensorsType type) {
    for (int64_t i = 0; i < count; i++) {
        float value;
        expect_ok(safetensors_read(entry, i, 1, &value));
        uint16_t half = type == SAFE_F16 ? half_of(value) : bfloat16_from_float(value);
        expect_ok(type == SAFE_F32 ? safetensors_writer_append(writer, &value, 4)
                                   : safetensors_writer_append(writer, &half, 2));
    }
}

static void rewrite_fixture(const char *folder, Change change) {
    Safetensors *file;
    SafetensorsEntry entries[64], sources[64];
    int64_t count = 0;
    expect_ok(directory_make(folder));
    expect_ok(safetensors_open(FIXTURE "/model/model.safetensors", &file));
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        SafetensorsEntry entry = *safetensors_entry(file, i);
        if (change.without && strcmp(entry.name, change.without) == 0) continue;
        sources[count] = entry;
        if (change.scalar && strcmp(entry.name, change.scalar) == 0) sources[count].count = 1, entry.rank = 0;
        entry.type = change.type;
        if (change.bare) entry.name += strlen("transformer.");
        entries[count++] = entry;
    }
    if (change.head) {
        SafetensorsEntry entry = *safetensors_find(file, "transformer.wte.weight");
        sources[count] = entry;
        if (change.head == 2) sources[count].data += entry.bytes / entry.d[0] / 2; // half a row further
        if (change.head == 2) sources[count].digested = false;
        entry.name = "lm_head.weight";
        entry.type = change.type;
        entries[count++] = entry;
    }
    if (change.extra) {
        sources[count] = (SafetensorsEntry){
            .name = "zero", .type = SAFE_F32, .count = 1, .data = (const uint8_t *)"\0\0\0"};
        entries[count++] = (SafetensorsEntry){.name = change.extra, .type = change.type};
    }
    SafetensorsWriter *writer;
    expect_ok(safetensors_writer_open(inside(folder, "model.safetensors"), entries, count, NULL, 0, &writer));
    for (int64_t i = 0; i < count; i++) append_values(writer, &sources[i], sources[i].count, change.type);
    expect_ok(safetensors_writer_close(writer));
    safetensors_close(file);
}

static void open_fixture(Model *model, const char *folder, Dtype dtype) {
    Config config;
    expect_ok(checkpoint_config(FIXTURE "/model", &config));
    model_open(model, &config, dtype, false);
    expect_ok(checkpoint_load(&model->ctx, folder, &model->parameters));
}

static void names_and_dtypes_vary(void **scratch) {
    const char *folder = inside(*scratch, "model");
    static const Change changes[] = {{.bare = true, .type = SAFE_F32},
                                     {.type = SAFE_F32, .head = 1},
                                     {.bare = true, .type = SAFE_F32, .extra = "h.0.attn.bias"},
                                     {.type = SAFE_F32, .extra = "transformer.h.1.attn.masked_bias"},
                                     {.type = SAFE_BF16},
                                     {.type = SAFE_F16}};
    Model original;
    open_fixture(&original, FIXTURE "/model", F32);
    const float *want = original.parameters.weight.data;
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
        Model model;
        rewrite_fixture(folder, changes[c]);
        open_fixture(&model, folder, F32);
        const float *got = model.parameters.weight.data;
        /* bf16 is rounded to nearest, half_of cuts off, and drops what is below 2^-14. */
        double unit = changes[c].type == SAFE_BF16 ? 0x1p-8 : changes[c].type == SAFE_F16 ? 0x1p-10 : 0;
        double least = changes[c].type == SAFE_F16 ? 0x1p-14 : 0;
        for (int64_t i = 0; i < original.parameters.size; i++)
            assert_true(fabs((double)got[i] - (double)want[i]) <= unit * fabs((double)want[i]) + least);
        model_close(&model);
    }
    model_close(&original);
}

static void a_head_is_the_table_or_its_own(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Model tied, untied;
    Config config;
    open_fixture(&tied, FIXTURE "/model", F32);
    rewrite_fixture(folder, (Change){.type = SAFE_F32, .head = 2});
    expect_error(checkpoint_load(&tied.ctx, folder, &tied.parameters), ERROR_FORMAT,
                 "the head 'lm_head.weight' is not the token table");
    expect_ok(checkpoint_config(FIXTURE "/model", &config));
    config.tied_head = false;
    model_open(&untied, &config, F32, false);
    expect_ok(checkpoint_load(&untied.ctx, folder, &untied.parameters));
    const float *head = untied.parameters.head.weight.data,
                *table = untied.parameters.stack.token.weight.data;
    for (int64_t i = 0; i < (config.vocab - 1) * config.width; i++)
        assert_true(head[i] == table[i + config.width / 2]);
    model_close(&untied);
    model_close(&tied);
}

static void weights_that_do_not_fit_are_named(void **scratch) {
    const char *folder = inside(*scratch, "model");
    static const struct {
        Change change;
        const char *part;
    } cases[] = {
        {{.type = SAFE_F32, .without = "transformer.h.1.attn.c_attn.bias"},
         "lack 'transformer.h.1.attn.c_attn.bias'"},
        {{.type = SAFE_F32, .extra = "transformer.h.2.ln_1.bias"},
         "has no tensor 'transformer.h.2.ln_1.bias'"},
        {{.type = SAFE_F32, .extra = "wte.weight"}, "has no tensor 'wte.weight'"},
        {{.type = SAFE_F32, .scalar = "transformer.ln_f.bias"},
         "the shape (), but by config.json it is (24)"},
    };
    Model model;
    open_fixture(&model, FIXTURE "/model", F32);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rewrite_fixture(folder, cases[c].change);
        expect_error(checkpoint_load(&model.ctx, folder, &model.parameters), ERROR_FORMAT, cases[c].part);
    }
    expect_error(checkpoint_load(&model.ctx, FIXTURE "/start", &model.parameters), ERROR_FORMAT, "shape");
    expect_error(checkpoint_load(&model.ctx, *scratch, &model.parameters), ERROR_FILE, "model.safetensors");
    expect_error(checkpoint_config(*scratch, &model.config), ERROR_FILE, "config.json");
    model_close(&model);
}

/* Writes a training state that holds one tensor and these notes. */
static void write_state(const char *folder, const SafetensorsNote *notes, int64_t count) {
    SafetensorsWriter *writer;
    SafetensorsEntry entry = {.name = "m.x", .type = SAFE_F32, .rank = 1, .d = {1}};
    expect_ok(safetensors_writer_open(inside(folder, "training_state.safetensors"), &entry, 1, notes, count,
                                      &writer));
    expect_ok(safetensors_writer_append(writer, "1234", 4));
    expect_ok(safetensors_writer_close(writer));
}

/* Rewrites a file with another value for element 3 of the tensor `name`. */
static void spoil_value(const char *path, const char *name, float value) {
    Safetensors *file;
    SafetensorsWriter *writer;
    expect_ok(safetensors_open(path, &file));
    int64_t count = safetensors_count(file), notes = safetensors_note_count(file);
    SafetensorsNote kept[32];
    assert_true(notes <= 32);
    for (int64_t i = 0; i < notes; i++) kept[i] = safetensors_note(file, i);
    expect_ok(safetensors_writer_open(path, safetensors_entry(file, 0), count, kept, notes, &writer));
    for (int64_t i = 0; i < count; i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        float *values = memory_array((size_t)entry->count, sizeof *values);
        expect_ok(safetensors_read(entry, 0, entry->count, values));
        if (strcmp(entry->name, name) == 0) values[3] = value;
        expect_ok(safetensors_writer_append(writer, values, entry->bytes));
        memory_free(values);
    }
    expect_ok(safetensors_writer_close(writer));
    safetensors_close(file);
}

static const char small_bias[] = "transformer.h.0.attn.c_attn.bias";

static void moments_that_cannot_be_are_refused(void **scratch) {
    static const float wrong[][2] = {{NAN, 0}, {INFINITY, 0}, {0, NAN}, {0, -1}};
    const char *folder = inside(*scratch, "model");
    char name[80];
    Config config = model_small();
    Model model;
    TrainingState state = state_sample();
    model_open(&model, &config, F32, true);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        model_fill_all(&model);
        expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, &state));
        for (int moment = 0; moment < 2; moment++) {
            snprintf(name, sizeof name, "%c.%s", "mv"[moment], small_bias);
            spoil_value(inside(folder, "training_state.safetensors"), name, wrong[i][moment]);
        }
        expect_error(checkpoint_load_state(&model.ctx, folder, &model.parameters, &state), ERROR_FORMAT,
                     "which is not valid for a moment");
        expect_ok(values_write(&model.ctx, model.parameters.m, 3, 1, &wrong[i][0]));
        expect_ok(values_write(&model.ctx, model.parameters.v, 3, 1, &wrong[i][1]));
        expect_error(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, &state),
                     ERROR_NONFINITE, "which is not valid for a moment");
    }
    model_close(&model);
}

/* A non-finite value is neither saved nor loaded, and the earlier save stays. The matrix is stored
 * transposed, the bias is not. */
static void weights_that_are_not_finite_are_refused(void **scratch) {
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    const char *const names[] = {small_bias, "transformer.h.0.attn.c_attn.weight"};
    const char *folder = inside(*scratch, "model");
    Config config = model_small();
    Model model;
    model_open(&model, &config, F32, true);
    for (int i = 0; i < 6; i++) {
        model_fill_all(&model);
        expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, NULL));
        const ParameterInfo *info = model.parameters.info;
        while (strcmp(info->name, names[i / 3]) != 0) info++;
        expect_ok(values_write(&model.ctx, model.parameters.weight, info->offset + 3, 1, &wrong[i % 3]));
        expect_error(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, NULL),
                     ERROR_NONFINITE, names[i / 3]);
        expect_ok(checkpoint_load(&model.ctx, folder, &model.parameters));
        spoil_value(inside(folder, "model.safetensors"), names[i / 3], wrong[i % 3]);
        expect_error(checkpoint_load(&model.ctx, folder, &model.parameters), ERROR_FORMAT,
                     "a value that is not finite");
    }
    model_close(&model);
}

/* Moments have their own dtype; the message about scales does not mention it. */
static void scales_of_another_dtype_are_named(void **scratch) {
    const char *folder = inside(*scratch, "model"), *path = inside(folder, "training_state.safetensors");
    Config config = model_small();
    Model model;
    TrainingState state = state_sample();
    Safetensors *file;
    SafetensorsWriter *writer;
    model_open(&model, &config, F32, true);
    model_fill_all(&model);
    expect_ok(checkpoint_save(&model.ctx, folder, &config, &model.parameters, NULL, &state));
    expect_ok(safetensors_open(path, &file));
    int64_t count = safetensors_count(file), notes = safetensors_note_count(file);
    SafetensorsNote kept[32];
    for (int64_t i = 0; i < notes; i++) kept[i] = safetensors_note(file, i);
    SafetensorsEntry *entries = memory_array((size_t)count + 1, sizeof *entries);
    for (int64_t i = 0; i < count; i++) entries[i] = *safetensors_entry(file, i);
    entries[count] = (SafetensorsEntry){.name = "fusebox.scales", .type = SAFE_BF16, .rank = 1, .d = {1}};
    expect_ok(safetensors_writer_open(path, entries, count + 1, kept, notes, &writer));
    for (int64_t i = 0; i < count; i++)
        expect_ok(safetensors_writer_append(writer, entries[i].data, entries[i].bytes));
    expect_ok(safetensors_writer_append(writer, "12", 2));
    expect_ok(safetensors_writer_close(writer));
    expect_error(checkpoint_load_state(&model.ctx, folder, &model.parameters, &state), ERROR_FORMAT,
                 "'fusebox.scales' is of another shape or dtype");
    safetensors_close(file);
    memory_free(entries);
    model_close(&model);
}

static void states_that_do_not_fit_are_named(void **scratch) {
    const char *folder = inside(*scratch, "model");
    Config config = model_small(), other = model_small();
    other.hidden = 51;
    Model saved, loaded;
    model_open(&saved, &config, F32, true);
    model_open(&loaded, &other, F32, true);
    model_fill_all(&saved);
    TrainingState state = state_sample();
    expect_ok(checkpoint_save(&saved.ctx, folder, &config, &saved.parameters, NULL, &state));
    expect_error(checkpoint_load_state(&loaded.ctx, folder, &loaded.parameters, &state), ERROR_FORMAT,
                 "belongs to another model");
    const float *m = loaded.parameters.m.data; /* nothing was loaded */
    for (int64_t i = 0; i < loaded.parameters.size; i++) assert_true(m[i] == 0);

    SafetensorsNote notes[] = {{"fusebox.version", "1"},
                               {"fusebox.step", "1"},
                               {"fusebox.updates", "1"},
                               {"fusebox.tokens", "1"},
                               {"fusebox.position", "1"},
                               {"fusebox.seed", "1"},
                               {"fusebox.schedule", "wsd"},
                               {"fusebox.steps", "1"},
                               {"fusebox.warmup", "1"},
                               {"fusebox.learning_rate", "1"},
                               {"fusebox.min_learning_rate", "0"},
                               {"field", "value"}};
    enum { NOTES = sizeof notes / sizeof *notes };
    write_state(folder, notes, NOTES);
    expect_error(checkpoint_load_state(&saved.ctx, folder, &saved.parameters, &state), ERROR_FORMAT,
                 "holds 1 tensors");
    static const struct {
        int note;
        const char *value, *part;
    } wrong[] = {{0, "2", "version '2'"},
                 {1, "", "fusebox.step"},
                 {1, "-1", "fusebox.step"},
                 {1, "1x", "fusebox.step"},
                 {1, " 1", "fusebox.step"},
                 {1, "99999999999999999999", "fusebox.step"},
                 {5, "1.5", "fusebox.seed"},
                 {6, "a schedule that nobody knows", "fusebox.schedule"},
                 {9, "nan", "learning_rate"},
                 {9, "1e999", "learning_rate"},
                 {3, "9223372036854775807", "fusebox.tokens"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *kept = notes[wrong[i].note].value;
        notes[wrong[i].note].value = wrong[i].value;
        write_state(folder, notes, NOTES);
        expect_error(checkpoint_load_state(&saved.ctx, folder, &saved.parameters, &state), ERROR_FORMAT,
                     wrong[i].part);
        notes[wrong[i].note].value = kept;
    }
    write_state(folder, notes, 5);
    expect_error(checkpoint_load_state(&saved.ctx, folder, &saved.parameters, &state), ERROR_FORMAT,
                 "fusebox.seed");
    model_close(&saved);
    model_close(&loaded);
}

typedef struct {
    Model *model;
    const char *folder;
} Saved;

static Status load_weights(const Saved *s) {
    return checkpoint_load(&s->model->ctx, s->folder, &s->model->parameters);
}

static Status load_state(const Saved *s) {
    TrainingState state;
    return checkpoint_load_state(&s->model->ctx, s->folder, &s->model->parameters, &state);
}

/* Flips a bit of every tensor in turn; the number stays plausible. */
static void expect_each_is_checked(const Saved *s, const char *name, Status (*load)(const Saved *)) {
    const char *path = inside(s->folder, name);
    Safetensors *file;
    char *bytes;
    int64_t size;
    expect_ok(file_read(path, 1 << 24, &bytes, &size));
    expect_ok(safetensors_parse((uint8_t *)bytes, size, path, &file));
    assert_true(safetensors_count(file) > 10);
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        char *middle =
            bytes + (entry->data - (uint8_t *)bytes) + entry->bytes / entry->count * (entry->count / 2);
        *middle ^= 1;
        write_bytes(path, bytes, (size_t)size);
        *middle ^= 1;
        Status status = load(s);
        if (!status) fail_msg("%s: a bit of %s was flipped, and nobody noticed", name, entry->name);
        expect_error(status, ERROR_FORMAT, "digest");
    }
    write_bytes(path, bytes, (size_t)size);
    expect_ok(load(s));
    safetensors_close(file);
    memory_free(bytes);
}

static void every_tensors_digest_is_checked(void **scratch) {
    Config config = model_small();
    Model model;
    const TrainingState state = state_sample();
    const Saved saved = {&model, inside(*scratch, "model")};
    model_open(&model, &config, F32, true);
    model_fill_all(&model);
    expect_ok(checkpoint_save(&model.ctx, saved.folder, &config, &model.parameters, NULL, &state));
    expect_each_is_checked(&saved, "model.safetensors", load_weights);
    expect_each_is_checked(&saved, "training_state.safetensors", load_state);
    model_close(&model);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(names_and_dtypes_vary),
        IN_SCRATCH(a_head_is_the_table_or_its_own),
        IN_SCRATCH(weights_that_do_not_fit_are_named),
        IN_SCRATCH(states_that_do_not_fit_are_named),
        IN_SCRATCH(every_tensors_digest_is_checked),
        IN_SCRATCH(moments_that_cannot_be_are_refused),
        IN_SCRATCH(scales_of_another_dtype_are_named),
        IN_SCRATCH(weights_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
