#include "data/feed.h"

#include "base/memory.h"
#include "data/corpus.h"
#include "data/hash.h"

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

static Status open_pairs(const FeedOptions *o, const char *data, PairSource **pairs) {
    char *source, *target;
    if (!o->tokenizer)
        return fail(ERROR_USAGE,
                    "sentence pairs need a tokenizer; name one with --tokenizer=FOLDER, or train one with "
                    "--train-tokenizer=N");
    TRY(pairs_split_names(data, &source, &target));
    Status status = pairs_open(&(PairOptions){source, target, o->tokenizer, o->seq}, pairs);
    memory_free(source);
    memory_free(target);
    return status;
}

static Status masked_rule(const FeedOptions *o, MaskRule *rule) {
    *rule = (MaskRule){.begin = -1, .end = -1, .mask = -1, .vocab = o->vocab};
    if (o->tokenizer)
        *rule = (MaskRule){tokenizer_special(o->tokenizer, TOKEN_BEGIN),
                           tokenizer_special(o->tokenizer, TOKEN_END),
                           tokenizer_special(o->tokenizer, TOKEN_MASK), tokenizer_vocab(o->tokenizer)};
    if (rule->begin >= 0 && rule->end >= 0 && rule->mask >= 0) return OK;
    return fail(ERROR_USAGE, "masked tokens need a tokenizer with [CLS], [SEP] and [MASK], such as BERT's "
                             "vocab.txt; name its folder with --tokenizer, or train one with "
                             "--train-tokenizer=N");
}

/* Where a loader's rows come from, and which part of them: for training, or for validation. */
typedef struct {
    const TokenSource *source;
    const PairSource *pairs;
    int64_t first, length;
    bool training;
} Part;

static Status open_loader(const FeedOptions *o, Part part, Loader **loader) {
    LoaderOptions options = {.source = part.source,
                             .pairs = part.pairs,
                             .first = part.first,
                             .length = part.length,
                             .batch = o->batch,
                             .seq = o->seq,
                             .shuffle = part.training,
                             .seed = o->seed,
                             .workers = part.training ? o->workers : 0,
                             .share = part.training ? o->share : o->val_share,
                             .delay_us = part.training ? o->delay_us : 0,
                             .hold = o->hold,
                             .buffers = {pinned, release_pinned, o->device}};
    MaskRule rule;
    switch (o->kind) {
    case FEED_MASKED: TRY(masked_rule(o, &rule)); return loader_open_masked(&options, &rule, loader);
    case FEED_PAIRS: return loader_open_pairs(&options, loader);
    case FEED_PICTURES:
        return loader_open_drawn(&options, &(DrawnPictures){o->side, o->channels, o->vocab, 0}, loader);
    case FEED_WINDOWS: break;
    }
    return loader_open(&options, loader);
}

/* A source or pairs, whichever the kind of feed has. A tokenizer that cannot mask is reported before any
 * text is read with it, and before a text turns out to need one. */
static Status open_data(const FeedOptions *o, const char *data, TokenSource **source, PairSource **pairs) {
    MaskRule rule;
    if (o->kind == FEED_PAIRS) return open_pairs(o, data, pairs);
    if (o->kind == FEED_PICTURES) return OK; // drawn
    if (o->kind == FEED_MASKED) TRY(masked_rule(o, &rule));
    return open_source(o, data, source);
}

static Status count(const FeedOptions *o, Feed *feed) {
    PairPadding padding;
    feed->counts.tokens = feed->source ? tokens_count(feed->source) : 0;
    if (!feed->pairs) return OK;
    TRY(pairs_padding(feed->pairs, o->batch, o->seed, &padding));
    feed->counts =
        (FeedCounts){padding.tokens, pairs_count(feed->pairs), pairs_left_out(feed->pairs), padding.padded};
    return OK;
}

static Status open_all(const FeedOptions *o, Feed *feed) {
    TRY(open_data(o, o->data, &feed->source, &feed->pairs));
    TRY(count(o, feed));
    int64_t rows = feed->pairs ? feed->counts.pairs : feed->counts.tokens;
    if (o->kind == FEED_PICTURES) rows = feed->counts.tokens = DRAWN_PICTURES;
    Part train = {feed->source, feed->pairs, 0, 0, true};
    if (o->validate && *o->val_data) {
        TRY(open_data(o, o->val_data, &feed->val_source, &feed->val_pairs));
        Part val = {feed->val_source, feed->val_pairs, 0, 0, false};
        TRY(fail_at(open_loader(o, val, &feed->val), "--val-data"));
    } else if (o->validate) {
        train.length = rows - rows / 10;
        if (feed->pairs && train.length == rows)
            return fail(
                ERROR_FORMAT,
                "too few pairs (%lld) to hold out a tenth for validation; name others with --val-data, "
                "or do without validation: --val-every=0",
                (long long)rows);
        Status status = open_loader(o, (Part){feed->source, feed->pairs, train.length, 0, false}, &feed->val);
        TRY(fail_at(status,
                    "the last tenth of --data, held out for validation (--val-every=0 turns it off)"));
    }
    return open_loader(o, train, &feed->train);
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
    pairs_close(feed->pairs);
    pairs_close(feed->val_pairs);
    *feed = (Feed){0};
}

Status feed_fingerprint(const Feed *feed, uint64_t *hash) {
    enum { SAMPLES = 64, LENGTH = 256 };
    int32_t ids[LENGTH];
    if (!feed->pairs && !feed->source) { // drawn: the same everywhere
        *hash = 0;
        return OK;
    }
    int64_t count = feed->pairs ? feed->counts.pairs : tokens_count(feed->source), length = LENGTH;
    *hash = hash_bytes(0, &count, sizeof count);
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t at = count / SAMPLES * i;
        const int32_t *sample = ids;
        if (feed->pairs) {
            sample = pairs_sentence(feed->pairs, (int)(i % 2), at, &length);
        } else {
            length = count - at < LENGTH ? count - at : LENGTH;
            TRY(tokens_read(feed->source, at, length, ids));
        }
        *hash = hash_bytes(*hash, sample, (size_t)length * sizeof *sample);
    }
    return OK;
}
