/* Batches of sentence pairs of similar length. */
#include "base/memory.h"
#include "data/buckets.h"
#include "tasks/pairs/pairs.h"

#include <string.h>

/* The state of a batch maker of pairs. */
typedef struct {
    LoaderOptions options;
    const PairSource *pairs;
    Buckets *buckets;
} PairBatches;

/* Sorts by the target's length, then by the source's, including their begin or end token. */
static uint32_t size_of(const void *context, int64_t pair) {
    int64_t lengths[2];
    for (int side = 0; side < 2; side++) pairs_sentence(context, side, pair, &lengths[side]);
    return bucket_steps(lengths[1] + 1) * (BUCKET_SIZE_MOST + 1) + bucket_steps(lengths[0] + 1);
}

/* The width of rows for the longest of these sentences, including its begin or end token. */
static int64_t row_width(const PairBatches *p, int side, const int64_t *chosen, int64_t count) {
    int64_t longest = 0, length;
    for (int64_t row = 0; row < count; row++) {
        pairs_sentence(p->pairs, side, chosen[row], &length);
        if (length + 1 > longest) longest = length + 1;
    }
    return bucket_width(longest, p->options.seq);
}

static void fill(int32_t *row, int64_t from, int64_t width, int32_t value) {
    for (int64_t i = from; i < width; i++) row[i] = value;
}

/* Writes a sentence with one token before it or after it. Returns the number of tokens. */
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
    PairTokens special = pairs_special(p->pairs);
    OWNED int64_t *chosen = memory_array((size_t)o->batch, sizeof *chosen);
    int64_t count = buckets_choose(p->buckets, position / o->batch, chosen);
    int64_t S = row_width(p, 0, chosen, count), T = row_width(p, 1, chosen, count), length;
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
            const int32_t *ids = pairs_sentence(p->pairs, 0, chosen[row], &length);
            source_lengths[row] = (int32_t)put_sentence(ids, length, -1, special.end, from);
            ids = pairs_sentence(p->pairs, 1, chosen[row], &length);
            lengths[row] = (int32_t)put_sentence(ids, length, special.begin, -1, in);
            put_sentence(ids, length, -1, special.end, out);
        }
        batch->tokens += lengths[row];
        fill(from, source_lengths[row], S, special.pad);
        fill(in, lengths[row], T, special.pad);
        fill(out, lengths[row], T, -1);
    }
    return OK;
}

static Status count_pairs(void *context, int64_t position, int64_t *targets) {
    PairBatches *p = context;
    const LoaderOptions *o = &p->options;
    OWNED int64_t *chosen = memory_array((size_t)o->batch, sizeof *chosen);
    int64_t count = buckets_choose(p->buckets, position / o->batch, chosen), length;
    *targets = 0;
    for (int64_t row = 0; row < count; row++) {
        pairs_sentence(p->pairs, 1, chosen[row], &length);
        *targets += length + 1;
    }
    return OK;
}

/* ---- opening ---- */

static void release_pairs(void *context) {
    PairBatches *p = context;
    buckets_close(p->buckets);
    memory_free(p);
}

static Status new_batches(const LoaderOptions *o, const PairSource *pairs, PairBatches **batches) {
    PairBatches *p = memory_allocate(sizeof *p);
    const BucketOptions buckets = {.first = o->first,
                                   .count = o->length,
                                   .rows = pairs_count(pairs),
                                   .batch = o->batch,
                                   .shuffle = o->shuffle,
                                   .seed = o->seed,
                                   .size = size_of,
                                   .context = pairs};
    *p = (PairBatches){*o, pairs, NULL};
    Status status = buckets_open(&buckets, &p->buckets);
    if (status)
        memory_free(p);
    else
        *batches = p;
    return status;
}

Status loader_open_pairs(const LoaderOptions *options, const PairSource *pairs, Loader **loader) {
    int64_t bytes;
    PairBatches *p = NULL;
    *loader = NULL;
    TRY(loader_check(options, 3, &bytes));
    TRY(new_batches(options, pairs, &p));
    BatchMaker maker = {.context = p,
                        .windows = buckets_batches(p->buckets) * options->batch,
                        .bytes = bytes,
                        .make = make_pairs,
                        .count = count_pairs,
                        .release = release_pairs};
    return loader_start(options, maker, loader);
}

Status pairs_padding(const PairSource *pairs, int64_t batch, uint64_t seed, PairPadding *padding) {
    const LoaderOptions options = {.batch = batch, .seq = pairs_seq(pairs), .shuffle = true, .seed = seed};
    PairBatches *p = NULL;
    *padding = (PairPadding){0};
    OWNED int64_t *chosen = memory_array((size_t)batch, sizeof *chosen);
    Status status = new_batches(&options, pairs, &p);
    for (int64_t number = 0; !status && number < buckets_batches(p->buckets); number++) {
        int64_t count = buckets_choose(p->buckets, number, chosen), length;
        for (int side = 0; side < 2; side++) {
            padding->padded += batch * row_width(p, side, chosen, count);
            for (int64_t row = 0; row < count; row++) {
                pairs_sentence(pairs, side, chosen[row], &length);
                padding->tokens += length + 1;
            }
        }
    }
    if (p) release_pairs(p);
    return status;
}
