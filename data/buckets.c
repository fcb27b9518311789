#include "data/buckets.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/random.h"

#include <pthread.h>
#include <stdlib.h>

enum { INDEX_BITS = 32 }; // bits of a sorting key for a row's index in the shuffled epoch

struct Buckets {
    BucketOptions options;
    int64_t batches;      // per epoch
    int64_t *firsts;      // (batches + 1) start of each batch in the epoch
    int64_t most;         // rows of the largest batch
    pthread_mutex_t lock; // guards the members below
    int64_t epoch;        // the epoch of `order`; -1: none
    int64_t *order;       // (count) the epoch's rows, in the order of batches
    uint64_t *keys;       // (count) sorting keys
};

uint32_t bucket_steps(int64_t length) {
    int64_t steps = pieces(length, BUCKET_STEP);
    return (uint32_t)(steps < BUCKET_SIZE_MOST ? steps : BUCKET_SIZE_MOST);
}

int64_t bucket_width(int64_t longest, int64_t most) {
    int64_t width = pieces(longest, BUCKET_STEP) * BUCKET_STEP;
    return width < most ? width : most;
}

static int compare_keys(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The rank of a row, by which an epoch is sorted. */
static uint64_t rank_of(const BucketOptions *o, int64_t row) {
    uint32_t size = o->size(o->context, o->first + row);
    return o->tokens ? UINT32_MAX - size : size; // largest first, because it determines the width of a batch
}

/* Sorts the epoch's shuffled rows by size; rows of equal size stay shuffled. */
static void plan_epoch(Buckets *b, int64_t epoch) {
    const BucketOptions *o = &b->options;
    for (int64_t index = 0; index < o->count; index++) {
        int64_t row = random_permute(o->seed, (uint64_t)epoch, o->count, index);
        b->keys[index] = rank_of(o, row) << INDEX_BITS | (uint64_t)index;
    }
    qsort(b->keys, (size_t)o->count, sizeof *b->keys, compare_keys);
    for (int64_t i = 0; i < o->count; i++) {
        int64_t index = (int64_t)(b->keys[i] & ((1ull << INDEX_BITS) - 1));
        b->order[i] = random_permute(o->seed, (uint64_t)epoch, o->count, index);
    }
    b->epoch = epoch;
}

int64_t buckets_choose(Buckets *b, int64_t number, int64_t *chosen) {
    const BucketOptions *o = &b->options;
    int64_t epoch = number / b->batches, batch = number % b->batches;
    if (o->shuffle) batch = random_permute(~o->seed, (uint64_t)epoch, b->batches, batch);
    int64_t first = b->firsts[batch], count = b->firsts[batch + 1] - first;
    if (!o->shuffle) {
        for (int64_t row = 0; row < count; row++) chosen[row] = o->first + first + row;
        return count;
    }
    pthread_mutex_lock(&b->lock);
    if (b->epoch != epoch) plan_epoch(b, epoch);
    for (int64_t row = 0; row < count; row++) chosen[row] = o->first + b->order[first + row];
    pthread_mutex_unlock(&b->lock);
    return count;
}

static int64_t width_of(const BucketOptions *o, uint32_t size) {
    int64_t width = (int64_t)size * o->step;
    return width < o->seq ? width : o->seq;
}

/* Finds the starts of batches with a given number of tokens. The sequence of sizes is the same in every
 * epoch. */
static void cut_by_tokens(Buckets *b) {
    const BucketOptions *o = &b->options;
    int64_t rows = 0, width = 0;
    for (int64_t i = 0; i < o->count; i++) b->keys[i] = rank_of(o, i);
    if (o->shuffle) qsort(b->keys, (size_t)o->count, sizeof *b->keys, compare_keys);
    for (int64_t i = 0; i < o->count; i++, rows++) {
        int64_t own = width_of(o, (uint32_t)(UINT32_MAX - b->keys[i])), wider = own > width ? own : width;
        bool fits = rows && (rows + 1) * wider <= o->tokens;
        if (!fits) b->firsts[b->batches++] = i;
        width = fits ? wider : own;
        if (!fits) rows = 0;
        if (rows + 1 > b->most) b->most = rows + 1;
    }
    b->firsts[b->batches] = o->count;
}

static void cut_by_rows(Buckets *b) {
    const BucketOptions *o = &b->options;
    b->batches = (o->count + o->batch - 1) / o->batch;
    b->most = o->batch;
    for (int64_t i = 0; i < b->batches; i++) b->firsts[i] = i * o->batch;
    b->firsts[b->batches] = o->count;
}

Status buckets_open(const BucketOptions *options, Buckets **buckets) {
    BucketOptions o = *options;
    if (!o.count) o.count = o.rows - o.first;
    if (o.first < 0 || o.count < 1 || o.count > o.rows - o.first || o.count >> INDEX_BITS)
        return fail(ERROR_INTERNAL, "the part of the data from row %lld on, %lld rows long, is out of range",
                    (long long)o.first, (long long)options->count);
    Buckets *b = memory_allocate(sizeof *b);
    *b = (Buckets){.options = o, .epoch = -1};
    pthread_mutex_init(&b->lock, NULL);
    b->order = memory_array((size_t)o.count, sizeof *b->order);
    b->keys = memory_array((size_t)o.count, sizeof *b->keys);
    b->firsts = memory_array((size_t)o.count + 1, sizeof *b->firsts);
    if (o.tokens)
        cut_by_tokens(b);
    else
        cut_by_rows(b);
    *buckets = b;
    return OK;
}

void buckets_close(Buckets *b) {
    if (!b) return;
    pthread_mutex_destroy(&b->lock);
    memory_free(b->order);
    memory_free(b->keys);
    memory_free(b->firsts);
    memory_free(b);
}

int64_t buckets_batches(const Buckets *b) {
    return b->batches;
}

int64_t buckets_most(const Buckets *b) {
    return b->most;
}
