/* Batches of sentence pairs of similar length. */
#include "base/memory.h"
#include "base/random.h"
#include "data/loader_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIZE_BITS = 12, // of a length in steps, in a sorting key
    SIZE_MOST = (1 << SIZE_BITS) - 1,
    INDEX_BITS = 40, // of a pair's index in the shuffled epoch
};

/* What a maker of pair batches keeps. */
typedef struct {
    LoaderOptions options;
    int64_t count;        // pairs
    int64_t batches;      // of one epoch
    pthread_mutex_t lock; // guards what follows
    int64_t epoch;        // that `order` is of; -1: none
    int64_t *order;       // (count) the epoch's pairs, in the order of its batches
    uint64_t *keys;       // (count) to sort by
} PairBatches;

static int64_t steps_of(int64_t length) {
    int64_t steps = (length + PAIR_STEP) / PAIR_STEP; /* with its begin or end token */
    return steps < SIZE_MOST ? steps : SIZE_MOST;
}

static int compare_keys(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Sorts the epoch's shuffled pairs by length of target, then of source, in steps; equals stay shuffled. */
static void plan_epoch(PairBatches *p, int64_t epoch) {
    const LoaderOptions *o = &p->options;
    for (int64_t index = 0; index < p->count; index++) {
        int64_t lengths[2], pair = random_permute(o->seed, (uint64_t)epoch, p->count, index);
        for (int side = 0; side < 2; side++) pairs_sentence(o->pairs, side, o->first + pair, &lengths[side]);
        p->keys[index] = (uint64_t)steps_of(lengths[1]) << (SIZE_BITS + INDEX_BITS) |
                         (uint64_t)steps_of(lengths[0]) << INDEX_BITS | (uint64_t)index;
    }
    qsort(p->keys, (size_t)p->count, sizeof *p->keys, compare_keys);
    for (int64_t i = 0; i < p->count; i++) {
        int64_t index = (int64_t)(p->keys[i] & ((1ull << INDEX_BITS) - 1));
        p->order[i] = random_permute(o->seed, (uint64_t)epoch, p->count, index);
    }
    p->epoch = epoch;
}

/* The pairs of batch `number` of the endless row of epochs; returns how many, at most the batch's rows. */
static int64_t choose_pairs(PairBatches *p, int64_t number, int64_t *chosen) {
    const LoaderOptions *o = &p->options;
    int64_t epoch = number / p->batches, batch = number % p->batches;
    if (o->shuffle) batch = random_permute(~o->seed, (uint64_t)epoch, p->batches, batch);
    int64_t first = batch * o->batch;
    int64_t count = p->count - first < o->batch ? p->count - first : o->batch;
    if (!o->shuffle) {
        for (int64_t row = 0; row < count; row++) chosen[row] = o->first + first + row;
        return count;
    }
    pthread_mutex_lock(&p->lock);
    if (p->epoch != epoch) plan_epoch(p, epoch);
    for (int64_t row = 0; row < count; row++) chosen[row] = o->first + p->order[first + row];
    pthread_mutex_unlock(&p->lock);
    return count;
}

/* Tokens of a row as long as the longest of these sentences, with its begin or end token. */
static int64_t row_width(const LoaderOptions *o, int side, const int64_t *chosen, int64_t count) {
    int64_t longest = 0, length;
    for (int64_t row = 0; row < count; row++) {
        pairs_sentence(o->pairs, side, chosen[row], &length);
        if (length + 1 > longest) longest = length + 1;
    }
    int64_t width = (longest + PAIR_STEP - 1) / PAIR_STEP * PAIR_STEP;
    return width < o->seq ? width : o->seq;
}

static void fill(int32_t *row, int64_t from, int64_t width, int32_t value) {
    for (int64_t i = from; i < width; i++) row[i] = value;
}

/* A sentence and one token around it: at the end, or before it. Returns how many tokens. */
static int64_t put_sentence(const int32_t *ids, int64_t length, int32_t before, int32_t after, int32_t *row) {
    int64_t count = 0;
    if (before >= 0) row[count++] = before;
    memcpy(row + count, ids, (size_t)length * sizeof *row);
    count += length;
    if (after >= 0) row[count++] = after;
    return count;
}

static Status make_pairs(void *context, int64_t position, void *memory, Batch *batch) {
    PairBatches *p = context;
    const LoaderOptions *o = &p->options;
    PairTokens special = pairs_special(o->pairs);
    int64_t *chosen = memory_array((size_t)o->batch, sizeof *chosen);
    int64_t count = choose_pairs(p, position / o->batch, chosen);
    int64_t S = row_width(o, 0, chosen, count), T = row_width(o, 1, chosen, count), length;
    int32_t *inputs = memory, *targets = inputs + o->batch * T, *source = targets + o->batch * T;
    int32_t *lengths = source + o->batch * S, *source_lengths = lengths + o->batch;
    *batch = (Batch){.inputs = inputs,
                     .targets = targets,
                     .source = source,
                     .lengths = lengths,
                     .source_lengths = source_lengths,
                     .seq = T,
                     .source_seq = S,
                     .position = position};
    for (int64_t row = 0; row < o->batch; row++) {
        int32_t *in = inputs + row * T, *out = targets + row * T, *from = source + row * S;
        lengths[row] = source_lengths[row] = 0;
        if (row < count) {
            const int32_t *ids = pairs_sentence(o->pairs, 0, chosen[row], &length);
            source_lengths[row] = (int32_t)put_sentence(ids, length, -1, special.end, from);
            ids = pairs_sentence(o->pairs, 1, chosen[row], &length);
            lengths[row] = (int32_t)put_sentence(ids, length, special.begin, -1, in);
            put_sentence(ids, length, -1, special.end, out);
        }
        batch->tokens += lengths[row];
        fill(from, source_lengths[row], S, special.pad);
        fill(in, lengths[row], T, special.pad);
        fill(out, lengths[row], T, -1);
    }
    memory_free(chosen);
    return OK;
}

static Status count_pairs(void *context, int64_t position, int64_t *targets) {
    PairBatches *p = context;
    const LoaderOptions *o = &p->options;
    int64_t *chosen = memory_array((size_t)o->batch, sizeof *chosen);
    int64_t count = choose_pairs(p, position / o->batch, chosen), length;
    *targets = 0;
    for (int64_t row = 0; row < count; row++) {
        pairs_sentence(o->pairs, 1, chosen[row], &length);
        *targets += length + 1;
    }
    memory_free(chosen);
    return OK;
}

/* ---- opening ---- */

static void release_pairs(void *context) {
    PairBatches *p = context;
    pthread_mutex_destroy(&p->lock);
    memory_free(p->order);
    memory_free(p->keys);
    memory_free(p);
}

static Status new_batches(const LoaderOptions *o, PairBatches **batches) {
    int64_t count = o->length ? o->length : pairs_count(o->pairs) - o->first;
    if (o->first < 0 || count < 1 || count > pairs_count(o->pairs) - o->first || count >> INDEX_BITS)
        return fail(ERROR_INTERNAL,
                    "the part of the data from pair %lld on, %lld pairs long, is out of range",
                    (long long)o->first, (long long)o->length);
    PairBatches *p = memory_allocate(sizeof *p);
    *p = (PairBatches){
        .options = *o, .count = count, .batches = (count + o->batch - 1) / o->batch, .epoch = -1};
    pthread_mutex_init(&p->lock, NULL);
    p->order = memory_array((size_t)count, sizeof *p->order);
    p->keys = memory_array((size_t)count, sizeof *p->keys);
    *batches = p;
    return OK;
}

Status loader_open_pairs(const LoaderOptions *options, Loader **loader) {
    int64_t bytes;
    PairBatches *p = NULL;
    *loader = NULL;
    TRY(loader_check(options, 3, &bytes));
    TRY(new_batches(options, &p));
    BatchMaker maker = {.context = p,
                        .windows = p->batches * options->batch,
                        .bytes = bytes,
                        .make = make_pairs,
                        .count = count_pairs,
                        .release = release_pairs};
    return loader_start(options, maker, loader);
}

Status pairs_padding(const PairSource *pairs, int64_t batch, uint64_t seed, PairPadding *padding) {
    LoaderOptions options = {
        .pairs = pairs, .batch = batch, .seq = pairs_seq(pairs), .shuffle = true, .seed = seed};
    PairBatches *p = NULL;
    *padding = (PairPadding){0};
    int64_t *chosen = memory_array((size_t)batch, sizeof *chosen);
    Status status = new_batches(&options, &p);
    for (int64_t number = 0; !status && number < p->batches; number++) {
        int64_t count = choose_pairs(p, number, chosen), length;
        for (int side = 0; side < 2; side++) {
            padding->padded += batch * row_width(&options, side, chosen, count);
            for (int64_t row = 0; row < count; row++) {
                pairs_sentence(pairs, side, chosen[row], &length);
                padding->tokens += length + 1;
            }
        }
    }
    if (p) release_pairs(p);
    memory_free(chosen);
    return status;
}
