/* Fuzzes a run's folder from an input of scratch_unpack: the newest complete checkpoint, its configuration,
 * its weights, which may be quantized, and its training state. A checkpoint that loads is saved and loaded again,
 * bit for bit. */
#include "base/memory.h"
#include "model/checkpoint_internal.h"
#include "model/config.h"
#include "model/parameter_values.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { PARAMETERS_MOST = 1 << 14 };

typedef struct {
    Ctx ctx;
    Parameters parameters;
} Model;

static void model_open(Model *m, const Config *config, Dtype packed) {
    static Device *device;
    if (!device) must(!device_open_cpu(1, &device));
    *m = (Model){.ctx = {.device = device, .dtype = F32, .layer = -1, .measuring = true}};
    parameters_open(config, &m->parameters);
    m->parameters.packed = packed;
    must(!parameters_take(&m->ctx, &m->parameters, packed == F32));
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &m->ctx.arenas[i];
        arena_release(arena, (ArenaMark){0, 0});
        arena->base = memory_allocate(arena->peak);
        arena->capacity = arena->peak;
    }
    m->ctx.measuring = false;
    must(!parameters_take(&m->ctx, &m->parameters, packed == F32));
}

static void model_close(Model *m) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        memory_free(m->ctx.arenas[i].base);
        arena_close(&m->ctx.arenas[i]);
    }
    parameters_close(&m->parameters);
}

static bool same(Tensor a, Tensor b) {
    const size_t count = (size_t)tensor_count(a);
    return memcmp(a.data, b.data, dtype_bytes(a.dtype, (int64_t)count)) == 0 &&
           (!a.scales || memcmp(a.scales, b.scales, count / GROUP * sizeof(uint16_t)) == 0);
}

/* Quantized weights survive saving, too. */
static void save_and_load_packed(Model *m, const Config *config) {
    static const char folder[] = SCRATCH "/packed";
    Model again;
    Dtype packed;
    must(!checkpoint_save(&m->ctx, folder, config, &m->parameters, NULL, NULL));
    must(!checkpoint_check(folder, config, &packed) && packed == m->parameters.packed);
    model_open(&again, config, packed);
    must(!checkpoint_load(&again.ctx, folder, &again.parameters));
    for (int i = 0; i < m->parameters.count; i++)
        must(same(m->parameters.info[i].parameter->weight, again.parameters.info[i].parameter->weight));
    model_close(&again);
}

/* The newest complete checkpoint must be found. */
static void expect_newest(const char *run, const char *folder) {
    PathList passed = {0};
    char *latest, *whole;
    must(!checkpoint_latest(run, &latest) && latest && strcmp(latest, folder) == 0);
    must(!checkpoint_latest_intact(run, &whole, &passed) && whole && strcmp(whole, folder) == 0 &&
         !passed.count);
    memory_free(latest);
    memory_free(whole);
}

/* A loaded checkpoint must survive saving, and a newer checkpoint replaces an older one. */
static void save_and_load(Model *m, const Config *config, const TrainingState *state) {
    static const char run[] = SCRATCH "/run", first[] = SCRATCH "/run/step-00000007",
                      second[] = SCRATCH "/run/step-00000008";
    Model again;
    Config config_again;
    TrainingState back;
    Dtype packed;
    char *latest;
    Parameters *p = &m->parameters, *q = &again.parameters;
    must(!checkpoint_save(&m->ctx, first, config, p, NULL, state));
    expect_newest(run, first);
    must(!checkpoint_config(first, &config_again) && !checkpoint_check(first, &config_again, &packed));
    model_open(&again, &config_again, packed);
    must(!checkpoint_load(&again.ctx, first, q) && same(p->weight, q->weight));
    must(!checkpoint_load_state(&again.ctx, first, q, &back));
    must(same(p->m, q->m) && same(p->v, q->v) && memcmp(state, &back, sizeof back) == 0);
    must(!checkpoint_save(&again.ctx, second, &config_again, q, NULL, state) &&
         !checkpoint_prune(run, 0, 8, 1));
    expect_newest(run, second);
    must(!checkpoint_remove_after(run, 7) && !checkpoint_latest(run, &latest) && !latest);
    model_close(&again);
}

static void load(const char *folder) {
    Config config;
    Model model;
    TrainingState state = {0};
    Dtype packed;
    Status status = checkpoint_config(folder, &config);
    if (!status) status = checkpoint_check(folder, &config, &packed);
    if (!status && config_parameters(&config) <= PARAMETERS_MOST) {
        model_open(&model, &config, packed);
        status = checkpoint_load(&model.ctx, folder, &model.parameters);
        if (!status && packed != F32) save_and_load_packed(&model, &config);
        if (!status && packed == F32) {
            status = checkpoint_load_state(&model.ctx, folder, &model.parameters, &state);
            if (status) state = (TrainingState){.schedule = "cosine"};
            save_and_load(&model, &config, &state);
        }
        model_close(&model);
    }
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_FILE ||
         status_code(status) == ERROR_USAGE);
    status_free(status);
}

static void read_checkpoint(const uint8_t *data, size_t size) {
    char *folder;
    PathList passed = {0};
    scratch_unpack(data, size);
    Status status = checkpoint_latest_intact(SCRATCH, &folder, &passed);
    status_free(status);
    path_list_free(&passed);
    load(folder ? folder : SCRATCH "/step-00000001");
    memory_free(folder);
}

FUZZ(checkpoint, read_checkpoint, mutate_folder)
