/* batches: what a feed reads, as a trainer takes it. Each function is a FetchBatch (run/trainer.h)
 * whose source is a Batches. */
#pragma once

#include "run/feed.h"
#include "run/trainer.h"

typedef struct {
    const Feed *feed;
    Device *device;
    int64_t batch; // rows of a micro-batch
    int64_t accum; // micro-batches of a step, of each rank
    int64_t ranks;
    int64_t step_tokens; // targets that count in the step at hand
} Batches;

CHECKED Status batches_train(void *batches, int64_t index, Batch *batch);
CHECKED Status batches_validate(void *batches, int64_t index, Batch *batch);

/* Of training; the same index gives the same batch every time. */
CHECKED Status batches_train_at(void *batches, int64_t index, Batch *batch);
