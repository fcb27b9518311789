#include "app/embed_text.h"

#include "base/memory.h"
#include "data/lines.h"
#include "data/safetensors.h"
#include "run/text_encoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line's tokens: Job.tokens[first, first + count). */
typedef struct {
    int64_t first, count, line;
} Entry;

typedef struct {
    Session *session;
    const InferOptions *options;
    TextEncoder encoder;
    Lines lines;
    TokenList tokens;
    Entry *entries;    // (lines.count), the longest first
    int64_t cut;       // lines that are longer than the context
    int32_t *rows;     // (batch, seq) of one batch
    int32_t *lengths;  // (batch)
    float *hidden;     // (batch, seq, C) of one batch
    float *embeddings; // (lines.count, C)
} Job;

static int compare_entries(const void *left, const void *right) {
    const Entry *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static Status read_lines(Job *job) {
    TRY(lines_open(job->options->embed, &job->lines));
    if (!job->lines.count) return fail(ERROR_FORMAT, "%s is empty", job->options->embed);
    job->entries = memory_array((size_t)job->lines.count, sizeof *job->entries);
    for (int64_t i = 0; i < job->lines.count; i++) {
        const Line *line = &job->lines.list[i];
        int64_t first = job->tokens.count;
        bool cut;
        TRY(text_encoder_tokens(job->session->tokenizer, job->session->config.context, line->text,
                                line->length, &job->tokens, &cut));
        job->cut += cut;
        job->entries[i] = (Entry){first, job->tokens.count - first, i};
    }
    qsort(job->entries, (size_t)job->lines.count, sizeof *job->entries, compare_entries);
    return OK;
}

static Status prepare(Job *job) {
    TextEncoder *e = &job->encoder;
    int64_t C = e->model.config.width, lines = job->lines.count;
    e->batch = job->options->batch < lines ? job->options->batch : lines;
    e->seq = job->entries[0].count;
    e->pooled = job->options->pooling == POOLING_POOLER;
    if (e->pooled && !e->model.config.pooler)
        return fail(ERROR_USAGE, "--pooling=pooler: this model has none");
    job->rows = memory_array((size_t)(e->batch * e->seq), sizeof *job->rows);
    job->lengths = memory_array((size_t)e->batch, sizeof *job->lengths);
    job->hidden = memory_array((size_t)(e->batch * e->seq * C), sizeof *job->hidden);
    job->embeddings = memory_array((size_t)(lines * C), sizeof *job->embeddings);
    TRY(text_encoder_allocate(e));
    return session_load(job->session, &e->ctx, &e->model.parameters, (uint64_t)job->options->seed);
}

/* The mean of the first `count` of a row's hidden states; false if it is not finite. */
static bool mean(const float *hidden, int64_t count, int64_t C, float *out) {
    double all = 0;
    for (int64_t c = 0; c < C; c++) {
        double sum = 0;
        for (int64_t t = 0; t < count; t++) sum += (double)hidden[t * C + c];
        out[c] = (float)(sum / (double)count);
        all += fabs((double)out[c]);
    }
    return isfinite(all);
}

/* Embeds entries [first, first + count), as wide as the first of them. */
static Status embed_batch(Job *job, int64_t first, int64_t count) {
    TextEncoder *e = &job->encoder;
    int64_t T = job->entries[first].count, C = e->model.config.width;
    bool pooled = e->pooled;
    memset(job->rows, 0, (size_t)(count * T) * sizeof *job->rows); /* what pads is not looked at */
    for (int64_t row = 0; row < count; row++) {
        const Entry *entry = &job->entries[first + row];
        memcpy(job->rows + row * T, job->tokens.ids + entry->first, (size_t)entry->count * sizeof *job->rows);
        job->lengths[row] = (int32_t)entry->count;
    }
    TRY(text_encoder_run(e, job->rows, job->lengths, count, T, NULL));
    Tensor from = pooled ? e->pool : e->model.hidden;
    TRY(values_read(&e->ctx, from, 0, count * C * (pooled ? 1 : T), job->hidden));
    for (int64_t row = 0; row < count; row++) {
        const float *states = job->hidden + row * C * (pooled ? 1 : T);
        int64_t averaged = job->options->pooling == POOLING_MEAN ? job->lengths[row] : 1;
        int64_t line = job->entries[first + row].line;
        if (!mean(states, averaged, C, job->embeddings + line * C))
            return fail(ERROR_NONFINITE, "the embedding of line %" PRId64 " is not finite", line + 1);
    }
    return OK;
}

static Status write_embeddings(const Job *job) {
    int64_t C = job->encoder.model.config.width, lines = job->lines.count;
    SafetensorsEntry entry = {.name = "embeddings", .type = SAFE_F32, .rank = 2, .d = {lines, C}};
    SafetensorsWriter *writer = NULL;
    TRY(safetensors_writer_open(job->options->output, &entry, 1, NULL, 0, &writer));
    Status status =
        safetensors_writer_append(writer, job->embeddings, lines * C * (int64_t)sizeof *job->embeddings);
    if (!status) return safetensors_writer_close(writer);
    safetensors_writer_abandon(writer);
    return status;
}

static void print_result(const Job *job, double seconds) {
    const Config *c = &job->encoder.model.config;
    printf("%" PRId64 " embeddings of width %" PRId64 " in %s (%.2f s)\n", job->lines.count, c->width,
           job->options->output, seconds);
    if (job->cut)
        fprintf(stderr, "%" PRId64 " lines were cut: the model's context is %" PRId64 " tokens\n", job->cut,
                c->context);
}

static Status run(Job *job) {
    TRY(session_needs_bert(job->session, "embed"));
    TRY(text_encoder_open(&job->encoder, job->session->device, &job->session->config));
    session_prepare(job->session, &job->encoder.ctx);
    TRY(read_lines(job));
    TRY(prepare(job));
    double start = device_clock();
    int64_t most = job->encoder.batch, lines = job->lines.count;
    for (int64_t first = 0; first < lines; first += most)
        TRY(embed_batch(job, first, lines - first < most ? lines - first : most));
    double seconds = device_clock() - start;
    TRY(write_embeddings(job));
    if (!job->options->quiet) print_result(job, seconds);
    return OK;
}

Status embed_text(Session *session, const InferOptions *options) {
    Job *job = memory_allocate(sizeof *job); /* the model must stay where it is */
    job->session = session;
    job->options = options;
    Status status = run(job);
    memory_free(job->entries);
    memory_free(job->rows);
    memory_free(job->lengths);
    memory_free(job->hidden);
    memory_free(job->embeddings);
    token_list_free(&job->tokens);
    lines_close(&job->lines);
    text_encoder_close(&job->encoder);
    memory_free(job);
    return status;
}
