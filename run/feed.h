/* feed: the data of a run: a source and a loader for training, and one for validation. The task defines what
 * a source is and how its rows become batches. */
#pragma once

#include "base/json_writer.h"
#include "data/loader.h"
#include "run/trainer.h"
#include "run/world.h"

/* The parameters for opening a source. */
typedef struct {
    const TrainOptions *options;
    const OptionSet *set;
    const Session *session;
    const char *cache; // cache folder, or NULL
} FeedOptions;

enum { FEED_SAMPLE = 256 }; // tokens, or other values, of a sample
enum { BATCHES_HELD = 32 }; // batches of tokens that are uploaded at once

/* A task's source of batches. Members are required unless they mention NULL. */
typedef struct {
    const char *rows_name; // "pairs": name of the rows, at least one of which is held out; NULL: tokens
    int held;              // batches being uploaded at once, limited by pinned memory
    bool varied;           // rows, widths and target counts of batches vary (data/batch.h)
    bool slow;             // slow to read: validation prefetches, too
    /* `data` is --data or --val-data. */
    Status (*open)(const FeedOptions *o, const char *data, void **source);
    /* The number of rows. A tenth is held out for validation if there is no separate validation data. */
    int64_t (*rows)(const void *source);
    /* Opens a loader for the part of the source that `part` names; part->shuffle means training. */
    Status (*make)(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader);
    /* Computes figures that `print` and `record` report of the training source; NULL if that is cheap. */
    Status (*count)(const FeedOptions *o, void *source);
    void (*print)(const void *source, const Session *session);
    void (*record)(const void *source, JsonWriter *w);
    /* A row's content, for the fingerprint: `length` of at most FEED_SAMPLE values. */
    Status (*sample)(const void *source, int64_t row, int32_t *sample, int64_t *length);
    /* The message about the index-th skipped item, which the caller frees; NULL: no more. The member is NULL
     * if nothing is ever skipped. */
    char *(*skipped)(const void *source, int64_t index);
    void (*close)(void *source); // accepts NULL
} BatchSource;

/* Set `batches` before feed_open; an already opened source is used as it is. */
typedef struct {
    const BatchSource *batches;
    void *source, *val_source; // val_source is NULL if validation uses part of source
    Loader *train, *val;       // val is NULL unless validation is wanted
} Feed;

/* Collective: opens this rank's share of every step. Call feed_close afterwards, also after an error. */
CHECKED Status feed_open(const TrainOptions *options, const OptionSet *set, const Session *session,
                         World *world, Feed *feed);
void feed_close(Feed *feed);

/* Hashes the amount of training data and samples of it, so that ranks can compare their data. */
CHECKED Status feed_fingerprint(const Feed *feed, uint64_t *hash);

/* For BatchSource.print: ends a line with the number of tokens, and adds notes on surprising texts; `raw` is
 * tokens_raw, or NULL. */
void feed_print_tokens(int64_t tokens, const char *raw, const Tokenizer *tokenizer);

/* ---- batches for a trainer ---- */

/* The source of the FetchBatch functions below (run/trainer.h). */
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
