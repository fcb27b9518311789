/* checkpoint_internal: the two safetensors files of a checkpoint. */
#pragma once

#include "model/checkpoint.h"

enum { CHECKPOINT_CHUNK = 1 << 22 }; // fp32 values that pass at once

CHECKED Status weights_save(Ctx *ctx, const char *path, const Parameters *parameters);
/* Which of the heads that a family can have are in the folder's weights, whatever its config.json says: many
 * a folder holds more or less than the class that it names. Leaves the config alone where there are no
 * weights yet. */
void weights_heads(const char *folder, Config *config);
CHECKED Status weights_check(const char *folder, const Config *config);
CHECKED Status weights_load(Ctx *ctx, const char *folder, Parameters *parameters);

CHECKED Status training_state_save(Ctx *ctx, const char *path, const Parameters *parameters,
                                   const TrainingState *state);
CHECKED Status training_state_load(Ctx *ctx, const char *path, Parameters *parameters, TrainingState *state);
