#include "data/feed.h"

#include "base/memory.h"
#include "data/corpus.h"
#include "base/hash.h"

enum { SAMPLE_TOKENS = 256 }; // of a fingerprint

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
    TokenOptions tokens = {
        .tokenizer = o->tokenizer, .vocab = o->vocab, .field = o->field, .cache = o->cache};
    if (*data) return tokens_open(data, &tokens, source);
    PathList texts;
    if (!o->tokenizer)
        return fail(ERROR_USAGE, "without --data this checkout is the text, which a tokenizer reads: "
                                 "--tokenizer=FOLDER, or --tokenizer=bytes");
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

static Status open_conversations(const FeedOptions *o, const char *data, ConversationSource **source) {
    if (o->tokenizer)
        return conversations_open(&(ConversationOptions){data, o->tokenizer, o->template, o->seq, o->packed},
                                  source);
    return fail(ERROR_USAGE, "conversations need a tokenizer; name one with --tokenizer=FOLDER");
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
    const ConversationSource *conversations;
    const ImageSource *images;
    BrokenPictures *broken;
    int64_t first, length;
    bool training;
} Part;

/* `p` is the feed's, which outlives the loader. */
static Status open_pictures(const FeedPictures *p, const LoaderOptions *options, const Part *part,
                            int64_t classes, Loader **loader) {
    if (!part->images)
        return loader_open_drawn(
            options, &(DrawnPictures){p->processor.height, p->processor.channels, classes, 0}, loader);
    const PictureOptions pictures = {.source = part->images,
                                     .processor = p->processor,
                                     .augmentation = part->training ? &p->augmentation : NULL,
                                     .mixed = part->first || part->length,
                                     .once = !part->training,
                                     .broken = part->broken};
    return loader_open_pictures(options, &pictures, loader);
}

static Status open_loader(const FeedOptions *o, const Feed *feed, Part part, Loader **loader) {
    LoaderOptions options = {.source = part.source,
                             .pairs = part.pairs,
                             .conversations = part.conversations,
                             .first = part.first,
                             .length = part.length,
                             .batch = o->batch,
                             .seq = o->seq,
                             .shuffle = part.training,
                             .seed = o->seed,
                             .workers = part.training || part.images ? o->workers : 0,
                             .share = part.training ? o->share : o->val_share,
                             .delay_us = part.training ? o->delay_us : 0,
                             .hold = o->hold,
                             .buffers = {pinned, release_pinned, o->device}};
    MaskRule rule;
    switch (o->kind) {
    case FEED_MASKED: TRY(masked_rule(o, &rule)); return loader_open_masked(&options, &rule, loader);
    case FEED_PAIRS: return loader_open_pairs(&options, loader);
    case FEED_CONVERSATIONS: return loader_open_conversations(&options, loader);
    case FEED_PICTURES: return open_pictures(&feed->pictures, &options, &part, o->vocab, loader);
    case FEED_WINDOWS: break;
    }
    return loader_open(&options, loader);
}

/* What the kind of feed has. A tokenizer that cannot mask is reported before any text is read with it, and
 * before a text turns out to need one. */
static Status open_data(const FeedOptions *o, const char *data, TokenSource **source, PairSource **pairs,
                        ConversationSource **conversations) {
    MaskRule rule;
    switch (o->kind) {
    case FEED_PAIRS: return open_pairs(o, data, pairs);
    case FEED_CONVERSATIONS: return open_conversations(o, data, conversations);
    case FEED_MASKED: TRY(masked_rule(o, &rule)); break;
    case FEED_PICTURES: return OK; // they are open, or drawn
    case FEED_WINDOWS: break;
    }
    return open_source(o, data, source);
}

static Status count(const FeedOptions *o, Feed *feed) {
    PairPadding padding;
    FeedCounts *c = &feed->counts;
    const ImageSource *images = feed->pictures.train;
    if (feed->source)
        *c = (FeedCounts){.tokens = tokens_count(feed->source), .raw = tokens_raw(feed->source)};
    if (o->kind == FEED_PICTURES)
        *c = (FeedCounts){.tokens = images ? images_count(images) : DRAWN_PICTURES, .classes = o->vocab};
    if (feed->conversations) {
        const ConversationCounts all = conversations_counts(feed->conversations);
        *c = (FeedCounts){.tokens = all.tokens,
                          .left_out = all.left_out,
                          .conversations = all.conversations,
                          .rows = all.rows,
                          .cut = all.cut,
                          .answers = all.answers};
        TRY(conversations_padded(feed->conversations, o->batch, o->seq, true, &c->padded_apart));
        return conversations_padded(feed->conversations, o->batch, o->seq, false, &c->padded);
    }
    if (!feed->pairs) return OK;
    TRY(pairs_padding(feed->pairs, o->batch, o->seed, &padding));
    *c = (FeedCounts){.tokens = padding.tokens,
                      .pairs = pairs_count(feed->pairs),
                      .left_out = pairs_left_out(feed->pairs),
                      .padded = padding.padded};
    return OK;
}

static void prepare_pictures(const FeedOptions *o, Feed *feed) {
    const FeedPictures *p = &feed->pictures;
    feed->pictures = o->pictures;
    if (!p->skip_broken || !p->train) return;
    feed->broken = broken_open(images_count(p->train));
    feed->val_broken = broken_open(images_count(p->val ? p->val : p->train));
}

/* Validation by the last tenth of the training data. */
static Status hold_out(const FeedOptions *o, Feed *feed, Part *train) {
    bool rows = feed->pairs || feed->conversations ||
                feed->pictures.train; // of these none may be left: a loader sees too few tokens
    int64_t all = feed->pairs           ? feed->counts.pairs
                  : feed->conversations ? feed->counts.rows
                                        : feed->counts.tokens;
    Part val = *train;
    val.first = train->length = all - all / 10;
    val.training = false;
    val.broken = feed->val_broken;
    if (rows && val.first == all)
        return fail(ERROR_FORMAT,
                    "too few %s (%lld) to hold out a tenth for validation; name others with --val-data, "
                    "or do without validation: --val-every=0",
                    feed->pairs           ? "pairs"
                    : feed->conversations ? "rows of conversations"
                                          : "pictures",
                    (long long)all);
    return fail_at(open_loader(o, feed, val, &feed->val),
                   "the last tenth of --data, held out for validation (--val-every=0 turns it off)");
}

static Status open_all(const FeedOptions *o, Feed *feed) {
    const FeedPictures *p = &feed->pictures;
    prepare_pictures(o, feed);
    TRY(open_data(o, o->data, &feed->source, &feed->pairs, &feed->conversations));
    TRY(count(o, feed));
    Part train = {feed->source, feed->pairs, feed->conversations, p->train, feed->broken, 0, 0, true};
    if (o->validate && (*o->val_data || p->val)) {
        TRY(open_data(o, o->val_data, &feed->val_source, &feed->val_pairs, &feed->val_conversations));
        Part val = {.source = feed->val_source,
                    .pairs = feed->val_pairs,
                    .conversations = feed->val_conversations,
                    .images = p->val,
                    .broken = feed->val_broken};
        TRY(fail_at(open_loader(o, feed, val, &feed->val), "--val-data"));
    } else if (o->validate) {
        TRY(hold_out(o, feed, &train));
    }
    return open_loader(o, feed, train, &feed->train);
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
    broken_close(feed->broken);
    broken_close(feed->val_broken);
    conversations_close(feed->conversations);
    conversations_close(feed->val_conversations);
    *feed = (Feed){0};
}

/* Of picture `index`: its class, and its size where all have one. */
static void picture_facts(const ImageSource *images, int64_t index, int32_t *facts, int64_t *count) {
    *count = 4;
    facts[0] = images_label(images, index);
    facts[1] = (int32_t)images_height(images);
    facts[2] = (int32_t)images_width(images);
    facts[3] = (int32_t)images_channels(images);
}

/* A sample of the data at `at` of its pairs, conversations, pictures or tokens. */
static Status sample(const Feed *feed, int64_t index, int64_t at, int32_t ids[SAMPLE_TOKENS],
                     const int32_t **tokens, int64_t *length) {
    const uint8_t *answers;
    *tokens = ids;
    if (feed->pairs) {
        *tokens = pairs_sentence(feed->pairs, (int)(index % 2), at, length);
        return OK;
    }
    if (feed->conversations) {
        *tokens = conversations_tokens(feed->conversations, at, length, &answers);
        return OK;
    }
    if (feed->pictures.train) {
        picture_facts(feed->pictures.train, at, ids, length);
        return OK;
    }
    int64_t left = tokens_count(feed->source) - at;
    *length = left < SAMPLE_TOKENS ? left : SAMPLE_TOKENS;
    return tokens_read(feed->source, at, *length, ids);
}

Status feed_fingerprint(const Feed *feed, uint64_t *hash) {
    enum { SAMPLES = 64 };
    int32_t ids[SAMPLE_TOKENS];
    if (!feed->pairs && !feed->source && !feed->conversations &&
        !feed->pictures.train) { // drawn: the same everywhere
        *hash = 0;
        return OK;
    }
    const FeedCounts *c = &feed->counts;
    int64_t count = feed->pairs ? c->pairs : feed->conversations ? c->conversations : c->tokens, length;
    *hash = hash_bytes(0, &count, sizeof count);
    for (int64_t i = 0; i < SAMPLES; i++) {
        const int32_t *tokens;
        TRY(sample(feed, i, count / SAMPLES * i, ids, &tokens, &length));
        *hash = hash_bytes(*hash, tokens, (size_t)length * sizeof *tokens);
    }
    return OK;
}
