/* feed: what a run reads, opened from its options: a source and a loader for training, and one for validation.
 * What a source is, and how its rows become batches, is the task's to say. */
#pragma once

#include "base/json_writer.h"
#include "data/loader.h"
#include "run/world.h"

/* What a source is opened from. */
typedef struct {
    const TrainOptions *options;
    const OptionSet *set;
    const Session *session;
    const char *cache; // folder that keeps what has been read, or NULL
} FeedOptions;

enum { FEED_SAMPLE = 256 }; // tokens, or other facts, of a sample
enum { BATCHES_HELD = 32 }; // of tokens

/* A task's source of batches. Beside what has a NULL, all are there. */
typedef struct {
    const char *rows_name; // "pairs": of which at least one is held out; NULL: they are tokens
    int held;    // batches that may be on their way to the device at once: what they take in pinned memory
    bool varied; // batches' rows, widths and targets vary (data/batch.h)
    bool slow;   // to read: validation, too, reads ahead
    /* `data` is --data or --val-data. */
    Status (*open)(const FeedOptions *o, const char *data, void **source);
    /* A tenth of them is held out for validation, where it has no data of its own. */
    int64_t (*rows)(const void *source);
    /* A loader of the part of the source that `part` names; with part->shuffle for training. */
    Status (*make)(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader);
    /* What `print` and `record` tell of the source of training, where that is work; NULL: it is none. */
    Status (*count)(const FeedOptions *o, void *source);
    void (*print)(const void *source, const Session *session);
    void (*record)(const void *source, JsonWriter *w);
    /* Of a row, for the fingerprint: `length` of at most FEED_SAMPLE values. */
    Status (*sample)(const void *source, int64_t row, int32_t *sample, int64_t *length);
    /* The message about number `index` of what could not be read and was passed over, to be freed; NULL: there
     * are no more. NULL: nothing is passed over. */
    char *(*passed_over)(const void *source, int64_t index);
    void (*close)(void *source); // NULL is fine
} BatchSource;

/* `batches` is set before feed_open; a source that is there already is taken as it is. */
typedef struct {
    const BatchSource *batches;
    void *source, *val_source; // val_source NULL where validation uses a part of source
    Loader *train, *val;       // val NULL unless wanted
} Feed;

/* Collective: this rank's share of every step, for these options. feed_close it, also after an error. */
CHECKED Status feed_open(const TrainOptions *options, const OptionSet *set, const Session *session,
                         World *world, Feed *feed);
void feed_close(Feed *feed);

/* Of how much training data there is and of samples of it: processes that train together compare it. */
CHECKED Status feed_fingerprint(const Feed *feed, uint64_t *hash);

/* For BatchSource.print: ends a line with the tokens that there are, and says what of the texts may surprise;
 * `raw` is tokens_raw, or NULL. */
void feed_print_tokens(int64_t tokens, const char *raw, const Tokenizer *tokenizer);
