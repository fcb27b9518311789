/* batches: a feed's batches in the form that a trainer takes. Each function is a FetchBatch (run/trainer.h)
 * whose source is a Batches. */
#pragma once

#include "run/feed.h"
#include "run/trainer.h"

typedef struct {
    const Feed *feed;
    Device *device;
    int64_t batch; // rows of a micro-batch
    int64_t accum; // micro-batches per step and rank
    int64_t ranks;
    int64_t step_tokens; // number of targets in the current step
} Batches;

CHECKED Status batches_train(void *batches, int64_t index, Batch *batch);
CHECKED Status batches_validate(void *batches, int64_t index, Batch *batch);

/* Training batches; the same index always gives the same batch. */
CHECKED Status batches_train_at(void *batches, int64_t index, Batch *batch);
