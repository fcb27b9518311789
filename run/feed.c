#include "run/feed.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/hash.h"
#include "run/print_text.h"

#include <inttypes.h>
#include <stdio.h>

static void *pinned(void *context, size_t bytes) {
    Device *device = context;
    void *memory = NULL;
    Status status = device->pinned(device, bytes, &memory);
    if (!status) return memory;
    status_free(status);
    return NULL;
}

static void release_pinned(void *context, void *memory) {
    Device *device = context;
    device->release_pinned(device, memory);
}

/* Opens a loader for part of a source; `share` is this rank's. */
static Status open_loader(const FeedOptions *o, const Feed *feed, const void *source, LoaderOptions part,
                          LoaderShare share, Loader **loader) {
    const TrainOptions *train = o->options;
    part.batch = train->batch;
    part.seq = train->seq;
    part.seed = (uint64_t)train->seed;
    part.workers = part.shuffle || feed->batches->slow ? (int)train->workers : 0;
    part.delay_us = part.shuffle ? train->reader_delay : 0;
    part.share = share;
    part.hold = feed->batches->held;
    part.buffers = (HostBuffers){pinned, release_pinned, o->session->device};
    return feed->batches->make(o, source, &part, loader);
}

/* Holds out the last tenth of the training data for validation; `train` loses it. */
static Status hold_out(const FeedOptions *o, Feed *feed, LoaderOptions *train) {
    int64_t all = feed->batches->rows(feed->source), kept = all - all / 10;
    if (feed->batches->rows_name && kept == all)
        return fail(ERROR_FORMAT,
                    "too few %s (%" PRId64 ") to hold out a tenth for validation; give --val-data, or turn "
                    "validation off with --val-every=0",
                    feed->batches->rows_name, all);
    train->length = kept;
    return fail_at(
        open_loader(o, feed, feed->source, (LoaderOptions){.first = kept}, (LoaderShare){0}, &feed->val),
        "the last tenth of --data, held out for validation (--val-every=0 turns it off)");
}

static Status open_all(const FeedOptions *o, LoaderShare share, Feed *feed) {
    const BatchSource *batches = feed->batches;
    const TrainOptions *train = o->options;
    LoaderOptions part = {.shuffle = true};
    bool validate = train->val_every > 0 && !train->compare;
    if (!feed->source) TRY(batches->open(o, train->data, &feed->source));
    if (batches->count) TRY(batches->count(o, feed->source));
    if (validate && *train->val_data && !feed->val_source)
        TRY(batches->open(o, train->val_data, &feed->val_source));
    if (feed->val_source)
        TRY(fail_at(open_loader(o, feed, feed->val_source, (LoaderOptions){0}, (LoaderShare){0}, &feed->val),
                    "--val-data"));
    else if (validate)
        TRY(hold_out(o, feed, &part));
    return open_loader(o, feed, feed->source, part, share, &feed->train);
}

Status feed_open(const TrainOptions *options, const OptionSet *set, const Session *session, World *world,
                 Feed *feed) {
    OWNED char *cache = *options->out ? path_join(options->out, "cache") : NULL;
    const FeedOptions from = {options, set, session, cache};
    const LoaderShare share = {world->rank, world->size, options->accum};
    /* Rank 0 goes first and caches the tokens for the others. */
    Status status = world->rank > 0 ? world_agree(world, OK) : OK;
    if (!status) status = open_all(&from, share, feed);
    return world->rank == 0 ? world_agree(world, status) : status;
}

void feed_close(Feed *feed) {
    loader_close(feed->train);
    loader_close(feed->val);
    if (feed->batches) feed->batches->close(feed->source);
    if (feed->batches) feed->batches->close(feed->val_source);
    *feed = (Feed){0};
}

Status feed_fingerprint(const Feed *feed, uint64_t *hash) {
    enum { SAMPLES = 64 };
    int32_t values[FEED_SAMPLE];
    int64_t rows = feed->batches->rows(feed->source), length;
    *hash = hash_bytes(0, &rows, sizeof rows);
    for (int64_t i = 0; i < SAMPLES; i++) {
        TRY(feed->batches->sample(feed->source, rows / SAMPLES * i, values, &length));
        *hash = hash_bytes(*hash, values, (size_t)length * sizeof *values);
    }
    return OK;
}

void feed_print_tokens(int64_t tokens, const char *raw, const Tokenizer *tokenizer) {
    printf("%" PRId64 " tokens (%s)\n", tokens,
           tokenizer ? tokenizer_name(tokenizer) : "shards, no tokenizer");
    if (raw) {
        printf("  %-18s ", "");
        print_name(raw, stdout);
        printf(" is read as plain text: its keys, quotes and commas are learned, too\n");
    }
    const char *passed = tokenizer ? tokenizer_passed(tokenizer) : NULL;
    if (!passed) return;
    printf("  %-18s the special token ", "");
    print_name(passed, stdout);
    printf(" is spelled in the data: there it is text\n");
}

/* ---- batches for a trainer ---- */

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
