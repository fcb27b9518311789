/* feed: what a run reads, opened from its options: a source and a loader for training, and one for
 * validation. */
#ifndef DATA_FEED_H
#define DATA_FEED_H

#include "data/loader.h"
#include "kernels/device/device.h"

typedef struct {
    const char *data;     // a file, pattern or folder; "": the built-in corpus
    const char *val_data; // the same; "": the last tenth of data
    bool validate;        // a validation loader is wanted
    Tokenizer *tokenizer; // NULL: only shards can be read
    int64_t vocab;        // of the model
    const char *cache;    // folder that keeps tokenized texts, or NULL
    int64_t batch, seq;
    uint64_t seed;
    int workers;
    int hold;       // batches that stay valid (data/loader.h)
    Device *device; // whose pinned memory the batches lie in
} FeedOptions;

typedef struct {
    TokenSource *source, *val_source; // val_source NULL where validation uses a part of source
    Loader *train, *val;              // val NULL unless wanted
} Feed;

CHECKED Status feed_open(const FeedOptions *options, Feed *feed);
void feed_close(Feed *feed);

#endif
