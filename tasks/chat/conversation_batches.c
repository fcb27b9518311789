/* Batches of conversations of similar length. */
#include "base/memory.h"
#include "data/buckets.h"
#include "tasks/chat/conversations.h"

#include <string.h>

/* The context of sorting. */
typedef struct {
    const ConversationSource *source;
    int64_t step;
    bool unpacked; // a row is one conversation, even if they are packed
} Sizes;

/* A conversation's inputs: all its tokens but the last. */
static int64_t inputs_of(const ConversationSource *source, int64_t conversation) {
    int64_t length;
    const uint8_t *answers;
    conversations_tokens(source, conversation, &length, &answers);
    return length - 1;
}

static int64_t row_inputs(const Sizes *sizes, int64_t row) {
    if (sizes->unpacked) return inputs_of(sizes->source, row);
    int64_t count, inputs = 0;
    const int64_t *members = conversations_row(sizes->source, row, &count);
    for (int64_t i = 0; i < count; i++) inputs += inputs_of(sizes->source, members[i]);
    return inputs;
}

static uint32_t size_of(const void *context, int64_t row) {
    const Sizes *sizes = context;
    return (uint32_t)((row_inputs(sizes, row) + sizes->step - 1) / sizes->step);
}

/* The state of a batch maker of conversations. */
typedef struct {
    LoaderOptions options;
    Sizes sizes;
    Buckets *buckets;
} ConversationBatches;

static int64_t row_width(const Sizes *sizes, const int64_t *chosen, int64_t count, int64_t seq) {
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t inputs = row_inputs(sizes, chosen[i]);
        if (inputs > longest) longest = inputs;
    }
    int64_t width = (longest + sizes->step - 1) / sizes->step * sizes->step;
    return width < seq ? width : seq;
}

/* Pointers to fill a row of a batch. */
typedef struct {
    int32_t *inputs, *targets, *starts; // (width)
    int64_t filled, answers;
} Row;

static void put_conversation(const ConversationSource *source, int64_t conversation, Row *row) {
    int64_t length, first = row->filled;
    const uint8_t *answers;
    const int32_t *ids = conversations_tokens(source, conversation, &length, &answers);
    for (int64_t i = 0; i + 1 < length; i++) {
        bool counts = answers[i + 1];
        row->inputs[first + i] = ids[i];
        row->targets[first + i] = counts ? ids[i + 1] : -1;
        row->starts[first + i] = (int32_t)first;
        row->answers += counts;
    }
    row->filled += length - 1;
}

static void put_padding(const ConversationSource *source, int64_t width, Row *row) {
    for (int64_t i = row->filled; i < width; i++) {
        row->inputs[i] = conversations_padding_token(source);
        row->targets[i] = -1;
        row->starts[i] = (int32_t)row->filled;
    }
}

static Status make_conversations(void *context, int64_t position, void *memory, Batch *batch) {
    ConversationBatches *c = context;
    const LoaderOptions *o = &c->options;
    OWNED int64_t *chosen = memory_array((size_t)buckets_most(c->buckets), sizeof *chosen);
    int64_t count = buckets_choose(c->buckets, position / o->batch, chosen);
    int64_t T = row_width(&c->sizes, chosen, count, o->seq), R = o->batch * o->seq / T;
    int32_t *inputs = memory, *targets = inputs + R * T, *starts = targets + R * T, *lengths = starts + R * T;
    *batch = (Batch){
        .inputs = inputs, .targets = targets, .lengths = lengths, .rows = R, .seq = T, .position = position};
    for (int64_t r = 0; r < R; r++) {
        Row row = {inputs + r * T, targets + r * T, starts + r * T, 0, 0};
        int64_t members = 0;
        const int64_t *list = r < count ? conversations_row(c->sizes.source, chosen[r], &members) : NULL;
        for (int64_t i = 0; i < members; i++) put_conversation(c->sizes.source, list[i], &row);
        lengths[r] = (int32_t)row.filled;
        put_padding(c->sizes.source, T, &row);
        batch->tokens += row.answers;
        if (members > 1)
            batch->starts = starts; // in an unpacked row all earlier tokens are of the same conversation
    }
    return OK;
}

static int64_t row_answers(const ConversationSource *source, int64_t row) {
    int64_t count, length, sum = 0;
    const uint8_t *answers;
    const int64_t *members = conversations_row(source, row, &count);
    for (int64_t m = 0; m < count; m++) {
        conversations_tokens(source, members[m], &length, &answers);
        for (int64_t i = 1; i < length; i++) sum += answers[i];
    }
    return sum;
}

static Status count_conversations(void *context, int64_t position, int64_t *targets) {
    ConversationBatches *c = context;
    const LoaderOptions *o = &c->options;
    OWNED int64_t *chosen = memory_array((size_t)buckets_most(c->buckets), sizeof *chosen);
    int64_t count = buckets_choose(c->buckets, position / o->batch, chosen);
    *targets = 0;
    for (int64_t row = 0; row < count; row++) *targets += row_answers(c->sizes.source, chosen[row]);
    return OK;
}

/* ---- opening ---- */

static void release(void *context) {
    ConversationBatches *c = context;
    buckets_close(c->buckets);
    memory_free(c);
}

static Status open_buckets(const LoaderOptions *o, const Sizes *sizes, Buckets **buckets) {
    const ConversationCounts counts = conversations_counts(sizes->source);
    const BucketOptions options = {.first = o->first,
                                   .count = o->length,
                                   .rows = sizes->unpacked ? counts.conversations : counts.rows,
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

Status loader_open_conversations(const LoaderOptions *options, const ConversationSource *source,
                                 Loader **loader) {
    int64_t bytes;
    *loader = NULL;
    TRY(loader_check(options, 4, &bytes)); // a row's length is at most its number of tokens
    ConversationBatches *c = memory_allocate(sizeof *c);
    *c = (ConversationBatches){*options, {source, batch_width_step(options->seq), false}, NULL};
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

Status conversations_padded(const ConversationSource *source, int64_t batch, int64_t seq, bool unpacked,
                            int64_t *tokens) {
    const LoaderOptions options = {.batch = batch, .seq = seq, .shuffle = true};
    const Sizes sizes = {source, batch_width_step(seq), unpacked};
    Buckets *buckets = NULL;
    *tokens = 0;
    TRY(open_buckets(&options, &sizes, &buckets));
    OWNED int64_t *chosen = memory_array((size_t)buckets_most(buckets), sizeof *chosen);
    for (int64_t number = 0; number < buckets_batches(buckets); number++) {
        int64_t count = buckets_choose(buckets, number, chosen), T = row_width(&sizes, chosen, count, seq);
        *tokens += batch * seq / T * T;
    }
    buckets_close(buckets);
    return OK;
}
