/* A run's folder from an input of scratch_unpack: the newest checkpoint that is whole, its configuration, its
 * weights and the state of training. What loads is saved and loaded again, the same to the bit. */
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

static void model_open(Model *m, const Config *config) {
    static Device *device;
    if (!device) must(!device_open_cpu(1, &device));
    *m = (Model){.ctx = {.device = device, .dtype = F32, .layer = -1, .measuring = true}};
    parameters_open(config, &m->parameters);
    must(!parameters_take(&m->ctx, &m->parameters, true));
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &m->ctx.arenas[i];
        arena_release(arena, (ArenaMark){0, 0});
        arena->base = memory_allocate(arena->peak);
        arena->capacity = arena->peak;
    }
    m->ctx.measuring = false;
    must(!parameters_take(&m->ctx, &m->parameters, true));
}

static void model_close(Model *m) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        memory_free(m->ctx.arenas[i].base);
        arena_close(&m->ctx.arenas[i]);
    }
    parameters_close(&m->parameters);
}

static bool same(Tensor a, Tensor b) {
    return memcmp(a.data, b.data, tensor_bytes(a)) == 0;
}

/* What was loaded, but for the names of families that files have. */
static void save_and_load(Model *m, const Config *config, const TrainingState *state) {
    Model again;
    TrainingState back;
    Parameters *p = &m->parameters, *q = &again.parameters;
    must(!weights_save(&m->ctx, SCRATCH "/saved/model.safetensors", p));
    model_open(&again, config);
    must(!weights_load(&again.ctx, SCRATCH "/saved", q) && same(p->weight, q->weight));
    if (state) {
        must(!training_state_save(&m->ctx, SCRATCH "/saved/state", p, state));
        must(!training_state_load(&again.ctx, SCRATCH "/saved/state", q, &back));
        must(same(p->m, q->m) && same(p->v, q->v) && memcmp(state, &back, sizeof back) == 0);
    }
    model_close(&again);
}

static void load(const char *folder) {
    Config config;
    Model model;
    TrainingState state = {0};
    Status status = checkpoint_config(folder, &config);
    if (!status) status = checkpoint_check(folder, &config);
    if (!status && config_parameters(&config) <= PARAMETERS_MOST) {
        model_open(&model, &config);
        status = checkpoint_load(&model.ctx, folder, &model.parameters);
        if (!status) {
            status = checkpoint_load_state(&model.ctx, folder, &model.parameters, &state);
            save_and_load(&model, &config, status ? NULL : &state);
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
    Status status = checkpoint_latest_whole(SCRATCH, &folder, &passed);
    status_free(status);
    path_list_free(&passed);
    load(folder ? folder : SCRATCH "/step-00000001");
    memory_free(folder);
}

FUZZ(checkpoint, read_checkpoint, mutate_folder)
