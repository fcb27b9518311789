/* The task "pairs": translating sentences. */
#include "base/memory.h"
#include "tasks/pairs/infer.h"
#include "tasks/pairs/pairs.h"
#include "tasks/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    PairSource *pairs;
    PairPadding padding; // padding of the training batches
} Source;

static void close_source(void *source) {
    Source *s = source;
    if (s) pairs_close(s->pairs);
    memory_free(s);
}

static Status open_source(const FeedOptions *o, const char *data, void **source) {
    OWNED char *from = NULL, *to = NULL;
    PairSource *pairs = NULL;
    if (!o->session->tokenizer)
        return fail(ERROR_USAGE,
                    "sentence pairs need a tokenizer; name one with --tokenizer=FOLDER, or train one with "
                    "--train-tokenizer=N");
    TRY(pairs_split_names(data, &from, &to));
    TRY(pairs_open(&(PairOptions){from, to, o->session->tokenizer, o->options->seq}, &pairs));
    Source *s = memory_allocate(sizeof *s);
    s->pairs = pairs;
    *source = s;
    return OK;
}

static int64_t rows(const void *source) {
    return pairs_count(((const Source *)source)->pairs);
}

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    (void)o;
    return loader_open_pairs(part, ((const Source *)source)->pairs, loader);
}

static Status count(const FeedOptions *o, void *source) {
    Source *s = source;
    return pairs_padding(s->pairs, o->options->batch, (uint64_t)o->options->seed, &s->padding);
}

static void print(const void *source, const Session *session) {
    const Source *s = source;
    printf("%" PRId64 " pairs (%" PRId64 " left out), %.1f%% padding, ", pairs_count(s->pairs),
           pairs_left_out(s->pairs), 100 - 100 * (double)s->padding.tokens / (double)s->padding.padded);
    feed_print_tokens(s->padding.tokens, NULL, session->tokenizer);
}

static void record(const void *source, JsonWriter *w) {
    const Source *s = source;
    json_member_integer(w, "data_tokens", s->padding.tokens);
    json_member_integer(w, "data_pairs", pairs_count(s->pairs));
    json_member_integer(w, "data_pairs_left_out", pairs_left_out(s->pairs));
    json_member_integer(w, "data_tokens_padded", s->padding.padded);
}

/* Alternates between source and target sentences. */
static Status sample(const void *source, int64_t row, int32_t *out, int64_t *length) {
    const int32_t *ids = pairs_sentence(((const Source *)source)->pairs, (int)(row % 2), row, length);
    if (*length > FEED_SAMPLE) *length = FEED_SAMPLE;
    memcpy(out, ids, (size_t)*length * sizeof *out);
    return OK;
}

static Status begin(TrainOptions *o, const OptionSet *set, Session *session, Feed *feed) {
    (void)set;
    (void)session;
    (void)feed;
    if (*o->data) return OK;
    return fail(ERROR_USAGE, "an encoder-decoder is trained on pairs of sentences: --data=SOURCE,TARGET");
}

static const Command commands[] = {
    {.selector = "translate",
     .reads = "tokens no-cache reference beam length-penalty min-tokens decoding profile-tokens profile "
              "batch output",
     .check = translate_check,
     .run = translate_text},
    {0},
};

const TaskRow task_pairs = {.trains = TASK_SEQUENCE,
                            .models = "an encoder-decoder",
                            .infer = &pairs_infer,
                            .reads = "label-smoothing",
                            .commands = commands,
                            .begin = begin,
                            .batches = {.rows_name = "pairs",
                                        .held = BATCHES_HELD,
                                        .open = open_source,
                                        .rows = rows,
                                        .make = make,
                                        .count = count,
                                        .print = print,
                                        .record = record,
                                        .sample = sample,
                                        .close = close_source}};
