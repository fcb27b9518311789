#include "data/feed.h"

#include "data/corpus.h"

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

static Status open_source(const FeedOptions *o, const char *data, TokenSource **source) {
    TokenOptions tokens = {.tokenizer = o->tokenizer, .vocab = o->vocab, .cache = o->cache};
    if (*data) return tokens_open(data, &tokens, source);
    PathList texts;
    TRY(corpus_list(&texts));
    Status status = tokens_open_texts(&texts, "corpus", &tokens, source);
    path_list_free(&texts);
    return status;
}

static Status open_loader(const FeedOptions *o, const TokenSource *source, int64_t first, int64_t length,
                          bool training, Loader **loader) {
    LoaderOptions options = {.source = source,
                             .first = first,
                             .length = length,
                             .batch = o->batch,
                             .seq = o->seq,
                             .shuffle = training,
                             .seed = o->seed,
                             .workers = training ? o->workers : 0,
                             .hold = o->hold,
                             .buffers = {pinned, release_pinned, o->device}};
    return loader_open(&options, loader);
}

static Status open_all(const FeedOptions *o, Feed *feed) {
    TRY(open_source(o, o->data, &feed->source));
    int64_t count = tokens_count(feed->source), length = 0;
    if (o->validate && *o->val_data) {
        TRY(open_source(o, o->val_data, &feed->val_source));
        TRY(fail_at(open_loader(o, feed->val_source, 0, 0, false, &feed->val), "--val-data"));
    } else if (o->validate) {
        length = count - count / 10;
        Status status = open_loader(o, feed->source, length, 0, false, &feed->val);
        TRY(fail_at(status, "the last tenth of --data, for validation (--val-every=0 does without)"));
    }
    return open_loader(o, feed->source, 0, length, true, &feed->train);
}

Status feed_open(const FeedOptions *options, Feed *feed) {
    *feed = (Feed){0};
    Status status = open_all(options, feed);
    if (status) feed_close(feed);
    return status;
}

void feed_close(Feed *feed) {
    loader_close(feed->train);
    loader_close(feed->val);
    tokens_close(feed->source);
    tokens_close(feed->val_source);
    *feed = (Feed){0};
}
