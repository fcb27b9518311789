#include "data/buckets.h"

#include "base/memory.h"
#include "base/random.h"

#include <pthread.h>
#include <stdlib.h>

enum { INDEX_BITS = 40 }; // of a row's index in the shuffled epoch, in a sorting key

struct Buckets {
    BucketOptions options;
    int64_t batches;      // of one epoch
    pthread_mutex_t lock; // guards what follows
    int64_t epoch;        // that `order` is of; -1: none
    int64_t *order;       // (count) the epoch's rows, in the order of its batches
    uint64_t *keys;       // (count) to sort by
};

uint32_t bucket_steps(int64_t length) {
    int64_t steps = (length + BUCKET_STEP - 1) / BUCKET_STEP;
    return (uint32_t)(steps < BUCKET_SIZE_MOST ? steps : BUCKET_SIZE_MOST);
}

int64_t bucket_width(int64_t longest, int64_t most) {
    int64_t width = (longest + BUCKET_STEP - 1) / BUCKET_STEP * BUCKET_STEP;
    return width < most ? width : most;
}

static int compare_keys(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Sorts the epoch's shuffled rows by size; equals stay shuffled. */
static void plan_epoch(Buckets *b, int64_t epoch) {
    const BucketOptions *o = &b->options;
    for (int64_t index = 0; index < o->count; index++) {
        int64_t row = random_permute(o->seed, (uint64_t)epoch, o->count, index);
        b->keys[index] = (uint64_t)o->size(o->context, o->first + row) << INDEX_BITS | (uint64_t)index;
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
    int64_t first = batch * o->batch;
    int64_t count = o->count - first < o->batch ? o->count - first : o->batch;
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

Status buckets_open(const BucketOptions *options, Buckets **buckets) {
    BucketOptions o = *options;
    if (!o.count) o.count = o.rows - o.first;
    if (o.first < 0 || o.count < 1 || o.count > o.rows - o.first || o.count >> INDEX_BITS)
        return fail(ERROR_INTERNAL, "the part of the data from row %lld on, %lld rows long, is out of range",
                    (long long)o.first, (long long)options->count);
    Buckets *b = memory_allocate(sizeof *b);
    *b = (Buckets){.options = o, .batches = (o.count + o.batch - 1) / o.batch, .epoch = -1};
    pthread_mutex_init(&b->lock, NULL);
    b->order = memory_array((size_t)o.count, sizeof *b->order);
    b->keys = memory_array((size_t)o.count, sizeof *b->keys);
    *buckets = b;
    return OK;
}

void buckets_close(Buckets *b) {
    if (!b) return;
    pthread_mutex_destroy(&b->lock);
    memory_free(b->order);
    memory_free(b->keys);
    memory_free(b);
}

int64_t buckets_batches(const Buckets *b) {
    return b->batches;
}
