/* buckets: rows of similar sizes in batches: as many rows in each, or as many as so many tokens hold. With
 * `shuffle`, each epoch's shuffled rows are sorted by their sizes, cut into batches, and the batches
 * shuffled; else they come in order. The last batch of an epoch may have fewer rows. Threads may choose at
 * once. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { BUCKET_STEP = 8, BUCKET_SIZE_MOST = (1 << 12) - 1 };

typedef struct {
    int64_t first, count; // rows that are used; count 0: to the end of `rows`
    int64_t rows, batch;
    /* With tokens: a batch's rows are as wide as its largest, in steps, at most seq. */
    int64_t tokens, step, seq;
    bool shuffle;
    uint64_t seed;
    /* Of a row, below 2^24; with `tokens` in steps. The largest come last, or first with `tokens`. */
    uint32_t (*size)(const void *context, int64_t row);
    const void *context;
} BucketOptions;

typedef struct Buckets Buckets;

/* ERROR_INTERNAL for a part that is out of range, or empty. */
CHECKED Status buckets_open(const BucketOptions *options, Buckets **buckets);
void buckets_close(Buckets *buckets); // NULL is fine

int64_t buckets_batches(const Buckets *buckets); // of one epoch

/* The rows of batch `number` of the endless row of epochs, into `chosen`; returns how many, at most
 * buckets_most. */
int64_t buckets_choose(Buckets *buckets, int64_t number, int64_t *chosen);
int64_t buckets_most(const Buckets *buckets);

/* A length in steps of BUCKET_STEP, for a size: at most BUCKET_SIZE_MOST. */
uint32_t bucket_steps(int64_t length);

/* The least multiple of BUCKET_STEP that holds `longest` tokens, or `most`. */
int64_t bucket_width(int64_t longest, int64_t most);
