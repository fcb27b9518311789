/* batches: what a feed reads, as a trainer takes it. Each function is a FetchBatch (run/trainer.h)
 * whose source is a Batches. */
#pragma once

#include "data/feed.h"
#include "run/trainer.h"

/* Micro-batches that may be on their way to the device, the feed's `hold`: of tokens, and of pictures,
 * which are a thousand times as large. */
enum { BATCHES_HELD = 32, PICTURES_HELD = 3 };

typedef struct {
    const Feed *feed;
    Device *device;
    int held;      // the feed's `hold`
    int64_t batch; // rows of a micro-batch
    int64_t accum; // micro-batches of a step, of each rank
    int64_t ranks;
    int64_t step_tokens; // targets that count in the step at hand
} Batches;

CHECKED Status batches_train(void *batches, int64_t index, Batch *batch);
CHECKED Status batches_validate(void *batches, int64_t index, Batch *batch);

/* Of training; the same index gives the same batch every time. */
CHECKED Status batches_train_at(void *batches, int64_t index, Batch *batch);
