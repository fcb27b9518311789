/* ViT against transformers' and PyTorch's numbers (fixtures/make_vit.py): logits, loss, gradients and updates
 * in every form; hidden states, pooling, the class token's attention, and positions of another size, for the
 * fixtures' folders and for those that FUSEBOX_VIT names. */
#include "base/directories.h"
#include "base/memory.h"
#include "tests/support/task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/fixtures/vit/"
static const char *const trained[] = {FIXTURES "model", FIXTURES "mean"};
enum { TRAINED = sizeof trained / sizeof *trained };

static ModelTask open_task(const char *folder, Safetensors **file) {
    char path[300];
    snprintf(path, sizeof path, "%s/values.safetensors", folder);
    return task_open(folder, path, file);
}

static void gradients_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_PATCH);
    for (int i = 0; i < TRAINED; i++) {
        Safetensors *file;
        const ModelTask task = open_task(trained[i], &file);
        task_check_gradients(&task, file, variant);
        safetensors_close(file);
    }
}

static void steps_are_pytorchs(void **state) {
    const Variant *variant = test_variant(state, OP_PATCH);
    for (int i = 0; i < TRAINED; i++) {
        Safetensors *file;
        const ModelTask task = open_task(trained[i], &file);
        task_check_steps(&task, file, variant);
        safetensors_close(file);
    }
}

/* With and without dropout and stochastic depth, whose masks are the same for all disturbed weights. */
static void gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < TRAINED; i++) {
        Safetensors *file;
        ModelTask task = open_task(trained[i], &file);
        task_check_slopes(&task);
        task.dropout = 0.2;
        task.depth = 0.5;
        task_check_slopes(&task);
        safetensors_close(file);
    }
}

static void recomputation_changes_nothing(void **state) {
    const Variant *variant = test_variant(state, OP_PATCH);
    Safetensors *file;
    ModelTask task = open_task(trained[0], &file);
    task.depth = 0.5;
    task_check_recomputation(&task, variant);
    safetensors_close(file);
}

/* ---- folders ---- */

typedef struct {
    ModelTask task;
    int64_t rows; // hidden states of a picture
} Encoding;

/* out: hidden states, the map, the pooled state, logits; NULL if not wanted */
static void encode(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const Encoding *e = what;
    const Config *c = &e->task.config;
    TaskSession s;
    task_session_open(&s, rig, &e->task, false);
    s.model.all_rows = true;
    s.model.map = rig_blank(rig, "map", rig->ctx.dtype, shape3(e->task.batch, c->heads, e->rows));
    const DeviceBatch inputs = {.pictures = s.pictures};
    expect_ok(transformer_forward(&rig->ctx, &s.model, &inputs, NULL));
    rig_get(rig, s.model.hidden, out[0]);
    if (out[1]) rig_get(rig, s.model.map, out[1]);
    if (out[2]) {
        Tensor pooled = rig_blank(rig, "pooled", rig->ctx.dtype, shape2(e->task.batch, c->width));
        expect_ok(transformer_pool(&rig->ctx, &s.model, s.model.hidden, pooled));
        rig_get(rig, pooled, out[2]);
    }
    if (out[3]) {
        s.model.all_rows = false; // the same logits, from the class token's row alone
        s.model.map = (Tensor){0};
        expect_ok(transformer_forward(&rig->ctx, &s.model, &inputs, NULL));
        task_get_logits(&s, rig, out[3]);
    }
    transformer_close(&s.model);
}

static void expect_values(const Safetensors *file, const char *name, const double *got, const char *folder) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    const double *want = doubles_of(file, name);
    double worst = 1;
    for (int64_t i = 0; i < entry->count; i++) worst = fmax(worst, fabs(want[i]));
    for (int64_t i = 0; i < entry->count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-5 * worst))
            fail_msg("%s: %s %lld is %.9g, and PyTorch's %.9g", folder, name, (long long)i, got[i], want[i]);
}

static void check_folder(const char *folder, const Variant *variant) {
    static const char *const names[] = {"hidden", "map", "pooled", "logits"};
    Safetensors *file;
    Encoding e = {.task = open_task(folder, &file)};
    Dtype packed;
    double *got[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        const SafetensorsEntry *entry = safetensors_find(file, names[i]);
        if (entry) got[i] = zeros(entry->count);
    }
    e.rows = e.task.config.context;
    expect_ok(checkpoint_check(folder, &e.task.config, &packed));
    rig_run_once(variant, encode, &e, NULL, got);
    for (int i = 0; i < 4; i++)
        if (got[i]) expect_values(file, names[i], got[i], folder);
    if (safetensors_find(file, "larger")) { // pictures of another size, for which positions are interpolated
        Config *c = &e.task.config;
        const SafetensorsEntry *larger = safetensors_find(file, "larger");
        c->image += 2 * c->patch;
        config_complete(c);
        memcpy(e.task.pictures = (uint8_t *)zeros(larger->count), larger->data, (size_t)larger->bytes);
        e.rows = c->context;
        double *hidden[4] = {zeros(safetensors_find(file, "larger_hidden")->count)};
        expect_ok(checkpoint_check(folder, c, &packed));
        rig_run_once(variant, encode, &e, NULL, hidden);
        expect_values(file, "larger_hidden", hidden[0], folder);
    }
    safetensors_close(file);
}

/* Saves it again, for make_vit.py --check. */
static void save_again(const char *folder) {
    char again[300];
    Config config;
    Parameters p;
    Ctx ctx = {.device = test_device(BACKEND_CPU), .dtype = F32, .layer = -1, .measuring = true};
    expect_ok(checkpoint_config(folder, &config));
    parameters_open(&config, &p);
    expect_ok(parameters_take(&ctx, &p, false));
    Arena *arena = &ctx.arenas[ARENA_PARAMETERS];
    size_t bytes = arena->peak;
    arena_close(arena);
    *arena = (Arena){.base = memory_allocate(bytes), .capacity = bytes};
    ctx.measuring = false;
    expect_ok(parameters_take(&ctx, &p, false));
    expect_ok(checkpoint_load(&ctx, folder, &p));
    snprintf(again, sizeof again, "%s/again", folder);
    expect_ok(checkpoint_save(&ctx, again, &config, &p, NULL, NULL));
    memory_free(arena->base);
    arena_close(arena);
    parameters_close(&p);
}

static void folders_compute_what_transformers_does(void **state) {
    const Variant *variant = test_variant(state, OP_PATCH);
    if (variant->dtype != F32 || variant->tf32) skip();
    check_folder(FIXTURES "encoder", variant);
    const char *more = getenv("FUSEBOX_VIT");
    if (!more) return;
    PathList folders;
    expect_ok(directory_list(more, &folders));
    for (int64_t i = 0; i < folders.count; i++) {
        check_folder(folders.paths[i], variant);
        if (variant == &variants[0]) save_again(folders.paths[i]);
    }
    print_message("%lld folders of %s\n", (long long)folders.count, more);
    path_list_free(&folders);
}

/* ---- a head for other classes ---- */

static void load(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)in;
    const ModelTask *task = what;
    Parameters p;
    parameters_open(&task->config, &p);
    expect_ok(parameters_take(&rig->ctx, &p, false));
    if (!rig->ctx.measuring) {
        expect_ok(parameters_initialize(&rig->ctx, &p, 3));
        expect_ok(checkpoint_load(&rig->ctx, task->folder, &p));
    }
    rig_get(rig, p.weight, out[0]);
    parameters_close(&p);
}

/* The head is new; all other weights are the folder's. */
static void a_new_head_is_drawn(void **state) {
    (void)state;
    Safetensors *file;
    ModelTask task = open_task(trained[0], &file), other = task;
    Dtype packed;
    other.config.vocab = 3;
    other.config.new_head = true;
    Parameters p, q;
    parameters_open(&task.config, &p);
    parameters_open(&other.config, &q);
    double *old[] = {zeros(p.size)}, *new[] = {zeros(q.size)};
    expect_ok(checkpoint_check(task.folder, &other.config, &packed));
    rig_run_once(&specification, load, &task, NULL, old);
    rig_run_once(&specification, load, &other, NULL, new);
    int64_t same = 0;
    for (int i = 0; i < p.count; i++) {
        const ParameterInfo *a = &p.info[i], *b = &q.info[i];
        bool of_head = a->parameter == &p.head || a->parameter == &p.head_bias;
        bool equal = memcmp(old[0] + a->offset, new[0] + b->offset, (size_t)a->count * sizeof(double)) == 0;
        same += equal;
        assert_true(equal != of_head);
    }
    assert_int_equal(same, p.count - 2);
    other.config.new_head = false;
    Status status = checkpoint_check(task.folder, &other.config, &packed);
    assert_int_equal(status_code(status), ERROR_FORMAT);
    status_free(status);
    parameters_close(&p);
    parameters_close(&q);
    safetensors_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(gradients_are_slopes),
                                       ONCE(a_new_head_is_drawn),
                                       ON_EACH_VARIANT(gradients_are_pytorchs),
                                       ON_EACH_VARIANT(steps_are_pytorchs),
                                       ON_EACH_VARIANT(recomputation_changes_nothing),
                                       ON_EACH_VARIANT(folders_compute_what_transformers_does)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
