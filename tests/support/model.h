/* model: a model's parameters on the CPU, for tests of storing them, and a trainer of a small model. */
#pragma once

#include "model/checkpoint.h"
#include "run/trainer.h"
#include "tests/support/expect.h"

typedef struct {
    Config config;
    Ctx ctx;
    Parameters parameters;
} Model;

/* Two blocks whose sizes are not powers of two, and a padded vocabulary. */
Config model_small(void);

void model_open(Model *model, const Config *config, Dtype dtype, bool training);
void model_close(Model *model);

/* Fills every element of a flat tensor, except padding, with random numbers. The second fills both moments;
 * the second moment is squared. */
void model_fill(Model *model, Tensor flat, uint64_t stream);
void model_fill_all(Model *model);

/* A trainer of two narrow blocks without padding, with initialized parameters, ready to step. */
typedef struct {
    int64_t batch, seq, accum;
    uint32_t fuses;
    bool graphs;
} SmallTrainer;
void model_open_trainer(Trainer *trainer, Device *device, const SmallTrainer *small);

/* FetchBatch: the same tokens every time, (batch * seq + 1) i32. */
Status model_fetch(void *tokens, int64_t index, Batch *micro);

/* A state with every member set, and two fields. */
TrainingState state_sample(void);
