/* buckets: batches of rows of similar size, with a fixed number of rows, or as many as fit a number of
 * tokens. With `shuffle`, each epoch's shuffled rows are sorted by size, cut into batches, and the batches
 * shuffled; otherwise rows stay in order. The last batch of an epoch may have fewer rows. Functions are
 * thread-safe. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { BUCKET_STEP = 8, BUCKET_SIZE_MOST = (1 << 12) - 1 };

typedef struct {
    int64_t first, count; // rows to use; count 0: to the end of `rows`
    int64_t rows, batch;
    /* With tokens: a batch is as wide as its largest row, in steps, at most seq. */
    int64_t tokens, step, seq;
    bool shuffle;
    uint64_t seed;
    /* The size of a row, below 2^24; with `tokens` in steps. The largest rows come last, or first with
     * `tokens`. */
    uint32_t (*size)(const void *context, int64_t row);
    const void *context;
} BucketOptions;

typedef struct Buckets Buckets;

/* ERROR_INTERNAL for a part that is out of range or empty. */
CHECKED Status buckets_open(const BucketOptions *options, Buckets **buckets);
void buckets_close(Buckets *buckets); // accepts NULL

int64_t buckets_batches(const Buckets *buckets); // per epoch

/* Writes the rows of batch `number`, counted over all epochs, to `chosen`; returns how many, at most
 * buckets_most. */
int64_t buckets_choose(Buckets *buckets, int64_t number, int64_t *chosen);
int64_t buckets_most(const Buckets *buckets);

/* A length in steps of BUCKET_STEP, as a size: at most BUCKET_SIZE_MOST. */
uint32_t bucket_steps(int64_t length);

/* The least multiple of BUCKET_STEP that is at least `longest`, or `most`. */
int64_t bucket_width(int64_t longest, int64_t most);
