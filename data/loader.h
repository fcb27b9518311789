/* loader: batches, read ahead by worker threads. Five kinds:
 *
 *   windows   the row of tokens is cut into windows of seq + 1 tokens with stride seq: a window's inputs are
 *             its first seq tokens, its targets its last seq
 *   masked    windows of seq - 2 tokens between a begin and an end token, some hidden behind the mask: the
 *             targets are what they were, -1 elsewhere (Devlin et al. 2019, section 3.1)
 *   pairs     a source and a target sentence in each row, padded to the longest of the batch (data/pairs.h)
 *   conversations   rows of them, padded alike; targets are the assistant's (data/conversations.h)
 *   pictures  with their classes: read from files (data/pictures.h), or drawn
 *
 * An epoch visits each row once, in an order shuffled by (seed, epoch), or in the data's order;
 * batches of windows run on over the end of an epoch. All state is the position, the number of rows handed
 * out since the start: the same position gives the same batches, whatever the number of workers.
 *
 * Where several processes train together, each has a loader that hands out its share of every step's batches:
 * of the share.run * share.count batches of a step, those from share.index * share.run on. Positions count
 * all rows, of all shares; between two steps they are the same in every process. */
#pragma once

#include "base/status.h"
#include "data/batch.h"
#include "data/conversations.h"
#include "data/pairs.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the batches' memory comes from: pinned memory, when a device reads it. */
typedef struct {
    void *(*allocate)(void *context, size_t bytes); // NULL where memory has run out
    void (*release)(void *context, void *pointer);
    void *context;
} HostBuffers;

/* count 0: no shares, every batch is this loader's. */
typedef struct {
    int64_t index, count, run;
} LoaderShare;

typedef struct {
    const TokenSource *source;               // of windows; outlives the loader
    const PairSource *pairs;                 // of pairs; outlives the loader
    const ConversationSource *conversations; // the same
    int64_t first, length; // the part that is used: tokens, pairs or conversations; length 0: to its end
    int64_t batch, seq;
    bool shuffle;
    uint64_t seed;
    int workers; // threads that read ahead, 0 to 64; 0: loader_next reads by itself
    int hold;    // how many of the latest batches stay valid, 1 to 64; 0 means 1
    LoaderShare share;
    int64_t delay_us; // makes every batch take this much longer to read, to study a starved loader; usually 0
    HostBuffers buffers; // all-zero: memory_allocate's
} LoaderOptions;

typedef struct Loader Loader;

/* ERROR_FORMAT where the source is too short for one window. */
CHECKED Status loader_open(const LoaderOptions *options, Loader **loader);

/* The tokens that masking puts in. In each row of n tokens, max(1, round(0.15 n)) positions are drawn: 80%
 * become the mask, 10% a token drawn from the whole vocabulary, 10% stay. Which, follows from seed and
 * position. */
typedef struct {
    int32_t begin, end, mask; // [CLS], [SEP], [MASK]
    int64_t vocab;
} MaskRule;
CHECKED Status loader_open_masked(const LoaderOptions *options, const MaskRule *rule, Loader **loader);

/* Batches of pairs of similar length: with `shuffle`, each epoch's shuffled pairs are sorted by their lengths
 * in steps of BUCKET_STEP, cut into batches, and the batches shuffled. The last batch of an epoch may have
 * rows that are all padding: their lengths are 0. ERROR_FORMAT where no pair fits. */
CHECKED Status loader_open_pairs(const LoaderOptions *options, Loader **loader);

/* Batches of rows of conversations, put together in the same way, but with as many rows of their width as
 * batch * seq tokens hold. */
CHECKED Status loader_open_conversations(const LoaderOptions *options, Loader **loader);

/* Pictures with their classes that need no data: what a class looks like is drawn, and so is the noise over
 * it. There are DRAWN_PICTURES of them, of which first and length choose a part. */
enum { DRAWN_PICTURES = 1 << 16 };
typedef struct {
    int64_t side, channels, classes;
    uint64_t seed; // of the pictures
} DrawnPictures;
CHECKED Status loader_open_drawn(const LoaderOptions *options, const DrawnPictures *what, Loader **loader);
void loader_close(Loader *loader); // ends the workers; NULL is fine

/* The next batch, valid until `hold` more have been asked for, or a seek, or the close. An error that a
 * worker met comes here, in its turn; the position then stays, and the next call tries the same batch
 * again. */
CHECKED Status loader_next(Loader *loader, Batch *batch);

/* How many targets count in the next `batches` batches, of all shares, when a step begins: what its loss is a
 * mean over must be known before its first micro-batch. Nothing is read ahead. */
CHECKED Status loader_targets(const Loader *loader, int64_t batches, int64_t *targets);

int64_t loader_position(const Loader *loader);                // rows handed out, of all shares
CHECKED Status loader_seek(Loader *loader, int64_t position); // the next batch begins with this row
int64_t loader_windows(const Loader *loader);                 // rows of one epoch

/* How long loader_next has waited for batches, in milliseconds, since the opening. */
double loader_waited_ms(const Loader *loader);

/* What the workers have read, or are reading now, and has not been handed out: of each the worker and when it
 * began, and ended or is seen to go on. Nothing else of it is set. Gives how many there are. */
enum { LOADER_AHEAD = 129 };
int loader_ahead(Loader *loader, Batch batches[LOADER_AHEAD]);
