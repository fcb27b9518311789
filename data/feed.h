/* feed: what a run reads, opened from its options: a source and a loader for training, and one for
 * validation. */
#pragma once

#include "data/loader.h"
#include "data/pictures.h"
#include "kernels/device/device.h"

typedef enum {
    FEED_WINDOWS,
    FEED_MASKED,
    FEED_PAIRS,
    FEED_CONVERSATIONS,
    FEED_PICTURES
} FeedKind; // data/loader.h says what each is

/* Of FEED_PICTURES. */
typedef struct {
    const ImageSource *train, *val; // outlive the feed. NULL: pictures are drawn; val NULL: a tenth of train
    ImageProcessor processor;
    Augmentation augmentation; // of training
    bool skip_broken;
} FeedPictures;

typedef struct {
    FeedKind kind;
    FeedPictures pictures; // instead of data and val_data
    const char *data;      // a file, pattern or folder, of pairs "SOURCE,TARGET"; "": the built-in corpus
    const char *val_data;  // the same; "": the last tenth of data
    bool validate;         // a validation loader is wanted
    Tokenizer *tokenizer;  // NULL: only shards can be read
    int64_t vocab;         // of the model: tokens, or classes
    const char *field;     // of texts that are JSON lines: the key of the text; "": they are plain
    const char *template;  // of conversations, as chat_open's name
    bool packed;           // conversations: several in a row, where they fit
    const char *cache;     // folder that keeps tokenized texts, or NULL
    int64_t batch, seq;
    uint64_t seed;
    int workers;
    int64_t delay_us;             // of every training batch, to study a starved loader; usually 0
    LoaderShare share, val_share; // of training and validation batches (data/loader.h)
    int hold;                     // batches that stay valid (data/loader.h)
    Device *device;               // whose pinned memory the batches lie in
} FeedOptions;

/* What the data is, for reports. Of pairs, `tokens` counts both sides, and `padded` the same with the padding
 * of an epoch's batches; else that is 0. Of pictures, `tokens` counts them. */
typedef struct {
    int64_t tokens, pairs, left_out, padded, classes;
    int64_t conversations, cut, answers; // conversations whose end was cut off; targets
    int64_t rows, padded_apart;          // that the conversations are in; `padded` if each were a row
    const char *raw;                     // tokens_raw, of training
} FeedCounts;

typedef struct {
    TokenSource *source, *val_source; // val_source NULL where validation uses a part of source
    PairSource *pairs, *val_pairs;    // the same, of pairs
    ConversationSource *conversations, *val_conversations;
    FeedPictures pictures;
    BrokenPictures *broken, *val_broken; // NULL: broken pictures are errors
    Loader *train, *val;                 // val NULL unless wanted
    FeedCounts counts;
} Feed;

CHECKED Status feed_open(const FeedOptions *options, Feed *feed);
void feed_close(Feed *feed);

/* Of how much training data there is and of samples of it: processes that train together compare it. */
CHECKED Status feed_fingerprint(const Feed *feed, uint64_t *hash);
