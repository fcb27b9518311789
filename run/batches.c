#include "run/batches.h"

static Status next(const Batches *batches, Loader *loader, int64_t index, Batch *batch) {
    /* Batches are uploaded asynchronously, so their memory must not be reused before the copy has
     * completed. */
    if (index && index % (batches->feed->batches->held - 1) == 0)
        TRY(batches->device->synchronize(batches->device));
    return loader_next(loader, batch);
}

Status batches_train(void *batches, int64_t index, Batch *batch) {
    Batches *own = batches;
    int64_t all = own->accum * own->ranks;
    if (index == 0 && all > 1) TRY(loader_targets(own->feed->train, all, &own->step_tokens));
    TRY(next(own, own->feed->train, index, batch));
    batch->step_tokens = own->step_tokens;
    return OK;
}

Status batches_validate(void *batches, int64_t index, Batch *batch) {
    const Batches *own = batches;
    return next(own, own->feed->val, index, batch);
}

Status batches_train_at(void *batches, int64_t index, Batch *batch) {
    const Batches *own = batches;
    TRY(own->device->synchronize(own->device));
    /* The loader returns this rank's share of a step, relative to the position where the step begins. */
    int64_t step = index / own->accum, others = step * own->accum * (own->ranks - 1);
    TRY(loader_seek(own->feed->train, (index + others) * own->batch));
    return next(own, own->feed->train, 0, batch);
}
