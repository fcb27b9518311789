/* The task of cycles: after 0, 1, ..., N - 1 comes 0. */
#include "base/memory.h"
#include "tasks/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char begins[] = "cycle:";
enum { ROWS = 1 << 20 };

static bool takes(const TrainOptions *o) {
    return strncmp(o->data, begins, sizeof begins - 1) == 0;
}

/* A source is N. */
static Status open_source(const FeedOptions *o, const char *data, void **source) {
    int64_t n = atoll(data + sizeof begins - 1);
    if (n < 2 || n > o->session->config.vocab)
        return fail(ERROR_USAGE, "--data=cycle:N needs a number from 2 to the model's vocabulary");
    *source = memory_allocate(sizeof n);
    memcpy(*source, &n, sizeof n);
    return OK;
}

static int64_t rows(const void *source) {
    (void)source;
    return ROWS;
}

/* ---- batches ---- */

typedef struct {
    LoaderOptions options;
    int64_t n;
} Maker;

/* Row r begins with r: any row is as good as another. */
static Status make_batch(void *context, int64_t position, void *memory, Batch *batch) {
    const Maker *m = context;
    int64_t B = m->options.batch, T = m->options.seq;
    int32_t *inputs = memory, *targets = inputs + B * T;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            inputs[b * T + t] = (int32_t)((position + b + t) % m->n);
            targets[b * T + t] = (int32_t)((position + b + t + 1) % m->n);
        }
    *batch = (Batch){.inputs = inputs, .targets = targets, .seq = T, .position = position, .tokens = B * T};
    return OK;
}

static Status count_targets(void *context, int64_t position, int64_t *targets) {
    const Maker *m = context;
    (void)position;
    *targets = m->options.batch * m->options.seq;
    return OK;
}

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    int64_t bytes;
    (void)o;
    TRY(loader_check(part, 2, &bytes));
    Maker *m = memory_allocate(sizeof *m);
    *m = (Maker){*part, *(const int64_t *)source};
    return loader_start(part, (BatchMaker){m, ROWS, bytes, make_batch, count_targets, memory_free}, loader);
}

/* ---- reports ---- */

static void print(const void *source, const Session *session) {
    (void)session;
    printf("a cycle of %" PRId64 " tokens\n", *(const int64_t *)source);
}

static void record(const void *source, JsonWriter *w) {
    json_member_integer(w, "data_tokens", *(const int64_t *)source);
}

static Status sample(const void *source, int64_t row, int32_t *out, int64_t *length) {
    (void)row;
    *length = 1;
    out[0] = (int32_t) * (const int64_t *)source;
    return OK;
}

const TaskRow task_cycle = {.trains = TASK_NEXT_TOKEN,
                            .models = "a decoder-only model",
                            .data = "cycles: --data=cycle:N",
                            .takes = takes,
                            .batches = {.held = BATCHES_HELD,
                                        .open = open_source,
                                        .rows = rows,
                                        .make = make,
                                        .print = print,
                                        .record = record,
                                        .sample = sample,
                                        .close = memory_free}};
