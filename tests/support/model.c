#include "tests/support/model.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

Config model_small(void) {
    Config config;
    expect_ok(config_preset("gpt2-nano", &config));
    config.layers = 2;
    config.heads = config.kv_heads = 3;
    config.head_size = 8;
    config.width = 24;
    config.hidden = 50; // not 4C
    config.context = 17;
    config.vocab = 131; // padded to 256
    memset(config.name, 0, sizeof config.name);
    strcpy(config.name, "custom"); // as if read from a file
    return config;
}

void model_open(Model *model, const Config *config, Dtype dtype, bool training) {
    *model = (Model){.config = *config, .ctx = {.dtype = dtype, .layer = -1, .measuring = true}};
    Ctx *ctx = &model->ctx;
    expect_ok(device_open_cpu(1, &ctx->device));
    parameters_open(config, &model->parameters);
    for (int i = 0; i < ARENA_COUNT; i++) ctx->arenas[i] = (Arena){.name = "test"};
    expect_ok(parameters_take(ctx, &model->parameters, training));
    for (int i = 0; i < ARENA_COUNT; i++) {
        Arena *arena = &ctx->arenas[i];
        void *memory = NULL;
        arena_release(arena, (ArenaMark){0, 0});
        if (arena->peak) expect_ok(ctx->device->allocate(ctx->device, arena->peak, &memory));
        arena->base = memory;
        arena->capacity = arena->peak;
    }
    ctx->measuring = false;
    expect_ok(parameters_take(ctx, &model->parameters, training));
}

void model_close(Model *model) {
    for (int i = 0; i < ARENA_COUNT; i++) {
        if (model->ctx.arenas[i].base)
            model->ctx.device->release(model->ctx.device, model->ctx.arenas[i].base);
        arena_close(&model->ctx.arenas[i]);
    }
    parameters_close(&model->parameters);
    model->ctx.device->close(model->ctx.device);
}

void model_fill(Model *model, Tensor flat, uint64_t stream) {
    for (int i = 0; i < model->parameters.count; i++) {
        const ParameterInfo *info = &model->parameters.info[i];
        int64_t count = info->rows * (info->count / info->shape.d[0]);
        float *values = malloc((size_t)count * sizeof *values);
        random_normals(7, stream, (uint64_t)info->offset, 1, values, count);
        expect_ok(values_write(&model->ctx, flat, info->offset, count, values));
        free(values);
    }
}

static void square(Model *model, Tensor flat) {
    int64_t count = tensor_count(flat);
    float *values = malloc((size_t)count * sizeof *values);
    expect_ok(values_read(&model->ctx, flat, 0, count, values));
    for (int64_t i = 0; i < count; i++) values[i] *= values[i];
    expect_ok(values_write(&model->ctx, flat, 0, count, values));
    free(values);
}

void model_fill_all(Model *model) {
    Parameters *p = &model->parameters;
    Tensor flats[] = {tensor_empty(p->master) ? p->weight : p->master, p->m, p->v};
    for (int i = 0; i < 3; i++) model_fill(model, flats[i], (uint64_t)i);
    if (!tensor_empty(p->v)) square(model, p->v);
}

void model_open_trainer(Trainer *t, Device *device, const SmallTrainer *small) {
    Config config;
    expect_ok(config_preset("gpt2-nano", &config));
    config.layers = 2;
    config.width = 32;
    config.heads = config.kv_heads = 2;
    config.head_size = 16;
    config.hidden = 128;
    config.context = small->seq;
    const Session session = {
        .device = device, .config = config, .fuses = small->fuses, .graphs = small->graphs};
    expect_ok(trainer_open(t, &session, NULL));
    t->batch = small->batch;
    t->seq = small->seq;
    t->accum = small->accum;
    t->update = (UpdateOptions){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    expect_ok(trainer_measure(t, NULL));
    expect_ok(trainer_allocate(t));
    expect_ok(parameters_initialize(&t->ctx, &t->model.parameters, 1));
}

Status model_fetch(void *tokens, int64_t index, Batch *micro) {
    const int32_t *first = tokens;
    (void)index;
    *micro = (Batch){.inputs = first, .targets = first + 1};
    return OK;
}

TrainingState state_sample(void) {
    return (TrainingState){.step = 123,
                           .updates = 120,
                           .tokens = INT64_C(1) << 40,
                           .position = 77,
                           .seed = UINT64_MAX,
                           .schedule = "cosine",
                           .steps = 1000,
                           .warmup = 10,
                           .learning_rate = 1.0 / 3,
                           .min_learning_rate = 1e-300};
}
