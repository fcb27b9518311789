#include "tasks/masked/infer.h"

#include "base/memory.h"
#include "data/digest.h"
#include "data/safetensors.h"
#include "run/answers.h"
#include "run/signals.h"
#include "tasks/masked/text_encoder.h"
#include "tasks/masked/sentence_config.h"
#include "tasks/text/text_lines.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Status embeddings_write(const char *path, const void *values, int64_t rows, int64_t width) {
    SafetensorsEntry entry = {.name = "embeddings", .type = SAFE_F32, .rank = 2, .d = {rows, width}};
    SafetensorsWriter *writer;
    TRY(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    return safetensors_writer_finish(
        writer, safetensors_writer_append(writer, values, rows * width * (int64_t)sizeof(float)));
}

typedef struct {
    Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const MaskedInfer *own;
    bool pooling_given, seq_given;
    TextEncoder encoder;
    SentenceConfig sentences; // settings in the model's folder; --pooling overrides them
    int64_t most;             // tokens per line
    TextLines text;
    int32_t *rows;    // (batch, seq) of one batch
    int32_t *lengths; // (batch)
    float *hidden;    // (batch, seq, C) of one batch
    float *embedding; // (C) of the current line
    Answers *answers;
} Job;

static Status prepare(Job *job) {
    TextEncoder *e = &job->encoder;
    int64_t C = e->model.config.width, lines = job->text.lines.count;
    e->batch = job->options->batch < lines ? job->options->batch : lines;
    e->seq = job->text.longest;
    e->pooled = job->sentences.pooling == POOLING_POOLER;
    if (e->pooled && !e->model.config.pooler)
        return fail(ERROR_USAGE, "--pooling=pooler: this model has no pooler");
    job->rows = memory_array((size_t)(e->batch * e->seq), sizeof *job->rows);
    job->lengths = memory_array((size_t)e->batch, sizeof *job->lengths);
    job->hidden = memory_array((size_t)(e->batch * e->seq * C), sizeof *job->hidden);
    job->embedding = memory_array((size_t)C, sizeof *job->embedding);
    return text_encoder_start(e, job->session, job->options->seed);
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

/* Normalizes to length 1; like PyTorch's normalize, a vector shorter than 1e-12 stays shorter. */
static void normalize(float *vector, int64_t C) {
    double squares = 0;
    for (int64_t c = 0; c < C; c++) squares += (double)vector[c] * (double)vector[c];
    double length = fmax(sqrt(squares), 1e-12);
    for (int64_t c = 0; c < C; c++) vector[c] = (float)((double)vector[c] / length);
}

/* Embeds entries [first, first + count), padded to the first of them, the longest. */
static Status embed_batch(Job *job, int64_t first, int64_t count) {
    TextEncoder *e = &job->encoder;
    int64_t T = job->text.sorted[first].count, C = e->model.config.width;
    bool pooled = e->pooled;
    memset(job->rows, 0, (size_t)(count * T) * sizeof *job->rows); /* the content of padding does not
                                                                    * matter */
    for (int64_t row = 0; row < count; row++) {
        const TextLine *entry = &job->text.sorted[first + row];
        memcpy(job->rows + row * T, job->text.tokens.ids + entry->first,
               (size_t)entry->count * sizeof *job->rows);
        job->lengths[row] = (int32_t)entry->count;
    }
    TRY(text_encoder_run(e, job->rows, job->lengths, count, T, NULL));
    Tensor from = pooled ? e->pool : e->model.hidden;
    TRY(values_read(&e->ctx, from, 0, count * C * (pooled ? 1 : T), job->hidden));
    for (int64_t row = 0; row < count; row++) {
        const float *states = job->hidden + row * C * (pooled ? 1 : T);
        int64_t averaged = job->sentences.pooling == POOLING_MEAN ? job->lengths[row] : 1;
        int64_t line = job->text.sorted[first + row].line;
        if (!mean(states, averaged, C, job->embedding))
            return fail(ERROR_NONFINITE, "the embedding of line %" PRId64 " is not finite", line + 1);
        if (job->sentences.normalize) normalize(job->embedding, C);
        TRY(answers_add(job->answers, line, job->embedding, C * (int64_t)sizeof *job->embedding));
    }
    return OK;
}

static Status publish(void *context, const char *path, const void *bytes) {
    const Job *job = context;
    return embeddings_write(path, bytes, job->text.lines.count, job->session->config.width);
}

static Status open_answers(Job *job) {
    const FileMap *text = &job->text.lines.map;
    const AnswersOptions options = {.session = job->session,
                                    .options = job->options,
                                    .set = job->set,
                                    .input = digest_bytes(text->data, (size_t)text->size),
                                    .total = job->text.lines.count,
                                    .record = job->session->config.width * (int64_t)sizeof *job->embedding,
                                    .context = job,
                                    .publish = publish};
    TRY(answers_open(&options, &job->answers));
    text_lines_sort(&job->text, answers_kept(job->answers), ANSWERS_BATCHES * job->options->batch);
    return OK;
}

static void print_result(const Job *job, double seconds) {
    const Config *c = &job->encoder.model.config;
    printf("%" PRId64 " embeddings of width %" PRId64 " in %s (%.2f s)\n", job->text.lines.count, c->width,
           job->options->output, seconds);
    if (job->most == c->context)
        text_lines_print_cut(&job->text, c->context);
    else if (job->text.cut)
        fprintf(stderr, "lines truncated to %" PRId64 " tokens: %" PRId64 "\n", job->most, job->text.cut);
}

/* Uses the folder's settings, unless options override them. */
static Status read_sentences(Job *job) {
    const InferOptions *o = job->options;
    SentenceConfig *s = &job->sentences;
    if (job->session->folder) TRY(sentence_config_read(job->session->folder, s));
    if (job->pooling_given || !s->has_pooling) s->pooling = job->own->pooling;
    job->most = s->most > 0 && s->most < o->seq && !job->seq_given ? s->most : o->seq;
    if (job->most > 2) return OK;
    return fail(ERROR_USAGE, "--embed: %" PRId64 " tokens leave no room for a word between [CLS] and [SEP]",
                job->most);
}

static Status run(Job *job) {
    TRY(masked_needs_tokenizer(job->session, "embed"));
    TRY(text_encoder_open(&job->encoder, job->session));
    TRY(read_sentences(job));
    TRY(text_lines_open(job->own->embed, job->session->tokenizer, true, job->most, &job->text));
    TRY(open_answers(job));
    TRY(prepare(job));
    double start = device_clock();
    int64_t most = job->encoder.batch, lines = job->text.lines.count;
    for (int64_t first = answers_kept(job->answers); first < lines && !signals_caught(); first += most)
        TRY(embed_batch(job, first, lines - first < most ? lines - first : most));
    double seconds = device_clock() - start;
    bool whole;
    TRY(answers_finish(job->answers, &whole));
    if (whole && !job->options->quiet) print_result(job, seconds);
    return OK;
}

static void job_close(Job *job) {
    memory_free(job->rows);
    memory_free(job->lengths);
    memory_free(job->hidden);
    memory_free(job->embedding);
    answers_close(job->answers);
    text_lines_close(&job->text);
    text_encoder_close(&job->encoder);
}

Status embed_text(Session *session, const InferOptions *options, const OptionSet *set) {
    CLOSED_BY(job_close)
    Job job = {.session = session,
               .options = options,
               .set = set,
               .own = options_values(set, &masked_infer),
               .pooling_given = options_given(set, "pooling"),
               .seq_given = options_given(set, "seq")};
    return run(&job);
}
