/* checkpoint_internal: the two safetensors files of a checkpoint. */
#pragma once

#include "data/safetensors.h"
#include "model/checkpoint.h"

enum { CHECKPOINT_CHUNK = 1 << 22 }; // most fp32 values processed at a time
/* Elements of that buffer for these parameters. */
int64_t checkpoint_chunk(const Parameters *parameters);

CHECKED Status weights_save(Ctx *ctx, const char *path, const Parameters *parameters);
/* Detects which optional heads and final norms the folder's weights contain, because many folders differ from
 * the class that their config.json names. Without weights the config stays unchanged. */
void weights_heads(const char *folder, Config *config);
CHECKED Status weights_check(const char *folder, const Config *config);
CHECKED Status weights_load(Ctx *ctx, const char *folder, Parameters *parameters);

CHECKED Status training_state_save(Ctx *ctx, const char *path, const Parameters *parameters,
                                   const TrainingState *state);
CHECKED Status training_state_load(Ctx *ctx, const char *path, Parameters *parameters, TrainingState *state);

/* A file of a checkpoint, written by all ranks. */
typedef struct {
    struct Rendezvous *ranks;  // NULL: one rank
    SafetensorsWriter *writer; // NULL on a rank that writes nothing
    int rank;
    int64_t count;
    int *owner; // (count) the rank that writes each entry
} RankFile;

/* Collective; `path` and the notes are rank 0's. Then the one rank for which rank_file_mine is true
 * appends each entry to the writer, in order. */
CHECKED Status rank_file_open(const Parameters *parameters, const char *path, const SafetensorsEntry *entries,
                              int64_t count, const SafetensorsNote *notes, int64_t note_count,
                              RankFile *file);
bool rank_file_mine(RankFile *file, int64_t entry);
/* Collective; takes ownership of `status`, the result of this rank's entries. If all ranks succeeded, rank 0
 * publishes the file; else all return an error. */
CHECKED Status rank_file_close(RankFile *file, Status status);
