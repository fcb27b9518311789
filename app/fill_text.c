/* ./infer --fill: the tokens that a BERT expects behind each [MASK]. */
#include "base/memory.h"
#include "app/embed_text.h"
#include "app/text_encoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char mask_text[] = "[MASK]";
enum { SHOWN = 5, MASK_BYTES = sizeof mask_text - 1 };

typedef struct {
    TextEncoder encoder;
    TokenList tokens; // [CLS] text [SEP], with the mask's id in the gaps
    TokenList places; // of the gaps in it
    float *logits;    // (gaps, padded vocab)
} Job;

/* The text's stretches between the gaps are tokenized each by itself; "[MASK]" in a text would be text. */
static Status read_text(Job *job, const char *text) {
    Tokenizer *t = job->encoder.session->tokenizer;
    int32_t mask = tokenizer_special(t, TOKEN_MASK);
    if (mask < 0) return fail(ERROR_USAGE, "--fill needs a tokenizer with [MASK]");
    token_list_add(&job->tokens, tokenizer_special(t, TOKEN_BEGIN));
    for (const char *gap; (gap = strstr(text, mask_text)) != NULL; text = gap + MASK_BYTES) {
        TRY(tokenizer_encode(t, text, gap - text, &job->tokens));
        token_list_add(&job->places, (int32_t)job->tokens.count);
        token_list_add(&job->tokens, mask);
    }
    TRY(tokenizer_encode(t, text, (int64_t)strlen(text), &job->tokens));
    token_list_add(&job->tokens, tokenizer_special(t, TOKEN_END));
    if (!job->places.count) return fail(ERROR_USAGE, "--fill: there is no [MASK] in the text");
    int64_t context = job->encoder.session->config.context;
    if (job->tokens.count <= context) return OK;
    return fail(ERROR_USAGE, "--fill: the text has %" PRId64 " tokens, and the model's context is %" PRId64,
                job->tokens.count, context);
}

static Status compute(Job *job, uint64_t seed) {
    TextEncoder *e = &job->encoder;
    int64_t gaps = job->places.count, padded = config_padded_vocab(&e->model.config);
    int32_t length = (int32_t)job->tokens.count;
    e->batch = 1;
    e->seq = length;
    e->logits = gaps;
    job->logits = memory_array((size_t)(gaps * padded), sizeof *job->logits);
    if (!job->logits) return fail(ERROR_MEMORY, "out of host memory for the logits");
    TRY(text_encoder_prepare(e, seed));
    TRY(text_encoder_run(e, job->tokens.ids, &length, 1, length, job->places.ids));
    return values_read(&e->ctx, e->output, 0, gaps * padded, job->logits);
}

static void print_token(const Tokenizer *t, int32_t id) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    if (length) fwrite(bytes, 1, (size_t)length, stdout); // a model may have more tokens than its tokenizer
}

/* In a list on one line: a line's end and its like as in C. */
static void print_candidate(const Tokenizer *t, int32_t id) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    fputc(' ', stderr);
    for (int64_t i = 0; i < length; i++) fprintf(stderr, bytes[i] < ' ' ? "\\%03o" : "%c", bytes[i]);
}

/* The likeliest tokens, the lower id first among equals; `sum` gets that of exp(logit - the largest). */
static void best_tokens(const float *logits, int64_t vocab, int32_t best[SHOWN], double *sum) {
    int count = 0;
    for (int32_t v = 0; v < vocab; v++) {
        int at = count < SHOWN ? count++ : SHOWN;
        for (; at > 0 && logits[v] > logits[best[at - 1]]; at--)
            if (at < SHOWN) best[at] = best[at - 1];
        if (at < SHOWN) best[at] = v;
    }
    *sum = 0;
    for (int64_t v = 0; v < vocab; v++) *sum += exp((double)logits[v] - (double)logits[best[0]]);
}

/* A folder may hold an encoder alone: its hidden states meet the vocabulary as they are. */
static void print_note(const Config *c, const InferOptions *options) {
    if (!c->head_transform && !options->quiet)
        fprintf(stderr,
                "%s has no masked-token head: its choice of tokens means little unless it was trained so\n",
                options->model);
}

static Status print_gaps(const Job *job, const char *text) {
    const TextEncoder *e = &job->encoder;
    const Config *c = &e->model.config;
    const Tokenizer *t = e->session->tokenizer;
    for (int64_t gap = 0; gap < job->places.count; gap++) {
        const float *logits = job->logits + gap * config_padded_vocab(c);
        int64_t shown = c->vocab < SHOWN ? c->vocab : SHOWN;
        int32_t best[SHOWN] = {0};
        double sum;
        best_tokens(logits, c->vocab, best, &sum);
        if (!isfinite(sum)) return fail(ERROR_NONFINITE, "the logits of a [MASK] are not finite");
        const char *end = strstr(text, mask_text);
        printf("%.*s", (int)(end - text), text);
        print_token(t, best[0]);
        fprintf(stderr, "gap %" PRId64 ":", gap + 1);
        for (int64_t i = 0; i < shown; i++) {
            print_candidate(t, best[i]);
            fprintf(stderr, " %.3f", exp((double)logits[best[i]] - (double)logits[best[0]]) / sum);
        }
        fprintf(stderr, "\n");
        text = end + MASK_BYTES;
    }
    printf("%s\n", text);
    return fflush(stdout) == 0 ? OK : fail(ERROR_FILE, "cannot write the text to standard output");
}

Status fill_text(Session *session, const InferOptions *options) {
    Job *job = memory_allocate(sizeof *job); /* the model must stay where it is */
    if (!job) return fail(ERROR_MEMORY, "out of host memory for a text");
    Status status = text_encoder_open(&job->encoder, session, "fill");
    if (!status) status = read_text(job, options->fill);
    if (!status) print_note(&session->config, options);
    if (!status) status = compute(job, (uint64_t)options->seed);
    if (!status) status = print_gaps(job, options->fill);
    memory_free(job->logits);
    token_list_free(&job->tokens);
    token_list_free(&job->places);
    text_encoder_close(&job->encoder);
    memory_free(job);
    return status;
}
