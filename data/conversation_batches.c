/* Batches of conversations of similar length. */
#include "base/memory.h"
#include "data/buckets.h"
#include "data/loader_internal.h"

#include <string.h>

/* A row's inputs: all its tokens but the last. */
static int64_t inputs_of(const ConversationSource *source, int64_t row) {
    int64_t length;
    const uint8_t *answers;
    conversations_row(source, row, &length, &answers);
    return length - 1;
}

/* What a maker of batches sorts by. */
typedef struct {
    const ConversationSource *source;
    int64_t step;
} Sizes;

static uint32_t size_of(const void *context, int64_t row) {
    const Sizes *sizes = context;
    return (uint32_t)((inputs_of(sizes->source, row) + sizes->step - 1) / sizes->step);
}

/* What a maker of batches of conversations keeps. */
typedef struct {
    LoaderOptions options;
    Sizes sizes;
    Buckets *buckets;
} ConversationBatches;

static int64_t row_width(const ConversationSource *source, const int64_t *chosen, int64_t count,
                         int64_t seq) {
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t inputs = inputs_of(source, chosen[i]);
        if (inputs > longest) longest = inputs;
    }
    int64_t step = batch_width_step(seq), width = (longest + step - 1) / step * step;
    return width < seq ? width : seq;
}

/* Fills a row, and returns how many targets it has. */
static int64_t put_row(const ConversationSource *source, int64_t row, int64_t width, int32_t *inputs,
                       int32_t *targets) {
    int64_t length, count = 0;
    const uint8_t *answers;
    const int32_t *ids = conversations_row(source, row, &length, &answers);
    for (int64_t i = 0; i < width; i++) {
        bool inside = i + 1 < length, counts = inside && answers[i + 1];
        inputs[i] = inside ? ids[i] : conversations_padding_token(source);
        targets[i] = counts ? ids[i + 1] : -1;
        count += counts;
    }
    return count;
}

static Status make_conversations(void *context, int64_t position, void *memory, Batch *batch) {
    ConversationBatches *c = context;
    const LoaderOptions *o = &c->options;
    int64_t *chosen = memory_array((size_t)buckets_most(c->buckets), sizeof *chosen);
    int64_t count = buckets_choose(c->buckets, position / o->batch, chosen);
    int64_t T = row_width(o->conversations, chosen, count, o->seq), R = o->batch * o->seq / T;
    int32_t *inputs = memory, *targets = inputs + R * T, *lengths = targets + R * T;
    *batch = (Batch){
        .inputs = inputs, .targets = targets, .lengths = lengths, .rows = R, .seq = T, .position = position};
    for (int64_t row = 0; row < R; row++) {
        bool there = row < count;
        lengths[row] = there ? (int32_t)inputs_of(o->conversations, chosen[row]) : 0;
        if (there) {
            batch->tokens += put_row(o->conversations, chosen[row], T, inputs + row * T, targets + row * T);
            continue;
        }
        for (int64_t i = row * T; i < (row + 1) * T; i++) {
            inputs[i] = conversations_padding_token(o->conversations);
            targets[i] = -1;
        }
    }
    memory_free(chosen);
    return OK;
}

static Status count_conversations(void *context, int64_t position, int64_t *targets) {
    ConversationBatches *c = context;
    const LoaderOptions *o = &c->options;
    int64_t *chosen = memory_array((size_t)buckets_most(c->buckets), sizeof *chosen), length;
    int64_t count = buckets_choose(c->buckets, position / o->batch, chosen);
    const uint8_t *answers;
    *targets = 0;
    for (int64_t row = 0; row < count; row++) {
        conversations_row(o->conversations, chosen[row], &length, &answers);
        for (int64_t i = 1; i < length; i++) *targets += answers[i];
    }
    memory_free(chosen);
    return OK;
}

/* ---- opening ---- */

static void release(void *context) {
    ConversationBatches *c = context;
    buckets_close(c->buckets);
    memory_free(c);
}

static Status open_buckets(const LoaderOptions *o, const Sizes *sizes, Buckets **buckets) {
    const BucketOptions options = {.first = o->first,
                                   .count = o->length,
                                   .rows = conversations_counts(o->conversations).rows,
                                   .batch = o->batch,
                                   .tokens = o->batch * o->seq,
                                   .step = sizes->step,
                                   .seq = o->seq,
                                   .shuffle = o->shuffle,
                                   .seed = o->seed,
                                   .size = size_of,
                                   .context = sizes};
    return buckets_open(&options, buckets);
}

Status loader_open_conversations(const LoaderOptions *options, Loader **loader) {
    int64_t bytes;
    *loader = NULL;
    TRY(loader_check(options, 3, &bytes)); // a row's length is no more than its tokens
    ConversationBatches *c = memory_allocate(sizeof *c);
    *c = (ConversationBatches){*options, {options->conversations, batch_width_step(options->seq)}, NULL};
    Status status = open_buckets(options, &c->sizes, &c->buckets);
    if (status) {
        release(c);
        return status;
    }
    BatchMaker maker = {.context = c,
                        .windows = buckets_batches(c->buckets) * options->batch,
                        .bytes = bytes,
                        .make = make_conversations,
                        .count = count_conversations,
                        .release = release};
    return loader_start(options, maker, loader);
}

Status conversations_padded(const ConversationSource *source, int64_t batch, int64_t seq, int64_t *tokens) {
    const LoaderOptions options = {.conversations = source, .batch = batch, .seq = seq, .shuffle = true};
    const Sizes sizes = {source, batch_width_step(seq)};
    Buckets *buckets = NULL;
    *tokens = 0;
    TRY(open_buckets(&options, &sizes, &buckets));
    int64_t *chosen = memory_array((size_t)buckets_most(buckets), sizeof *chosen);
    for (int64_t number = 0; number < buckets_batches(buckets); number++) {
        int64_t count = buckets_choose(buckets, number, chosen), T = row_width(source, chosen, count, seq);
        *tokens += batch * seq / T * T;
    }
    buckets_close(buckets);
    memory_free(chosen);
    return OK;
}
