/* ./infer --fill: a BERT's predictions for each [MASK]. */
#include "base/memory.h"
#include "base/utf8.h"
#include "tasks/masked/infer.h"
#include "run/print_text.h"
#include "tasks/masked/text_encoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char mask_text[] = "[MASK]";
enum { SHOWN = 5, MASK_BYTES = sizeof mask_text - 1 };

typedef struct {
    Session *session;
    const InferOptions *options;
    const MaskedInfer *own;
    TextEncoder encoder;
    TokenList tokens; // [CLS] text [SEP], with the mask's id in the gaps
    TokenList gaps;   // positions of the gaps in `tokens`
    float *logits;    // (gaps, padded vocab)
} Job;

typedef struct {
    int32_t ids[SHOWN];
    double likely[SHOWN]; // probabilities of these tokens
} Guess;

/* The text between the gaps is tokenized separately, because "[MASK]" in plain text is text. */
static Status read_text(Job *job, const char *text) {
    Tokenizer *t = job->session->tokenizer;
    int32_t mask = tokenizer_special(t, TOKEN_MASK);
    if (mask < 0) return fail(ERROR_USAGE, "--fill needs a tokenizer with [MASK]");
    token_list_add(&job->tokens, tokenizer_special(t, TOKEN_BEGIN));
    for (const char *gap; (gap = strstr(text, mask_text)) != NULL; text = gap + MASK_BYTES) {
        TRY(tokenizer_encode(t, text, gap - text, &job->tokens));
        token_list_add(&job->gaps, (int32_t)job->tokens.count);
        token_list_add(&job->tokens, mask);
    }
    TRY(tokenizer_encode(t, text, (int64_t)strlen(text), &job->tokens));
    token_list_add(&job->tokens, tokenizer_special(t, TOKEN_END));
    if (!job->gaps.count) return fail(ERROR_USAGE, "--fill: there is no [MASK] in the text");
    int64_t context = job->session->config.context;
    if (job->tokens.count <= context) return OK;
    return fail(ERROR_USAGE, "--fill: the text has %" PRId64 " tokens, but the model's context is %" PRId64,
                job->tokens.count, context);
}

static Status compute(Job *job) {
    TextEncoder *e = &job->encoder;
    int64_t gaps = job->gaps.count, padded = config_padded_vocab(&e->model.config);
    int32_t length = (int32_t)job->tokens.count;
    e->batch = 1;
    e->seq = length;
    e->logits = gaps;
    job->logits = memory_array((size_t)(gaps * padded), sizeof *job->logits);
    TRY(text_encoder_start(e, job->session, job->options->seed));
    TRY(text_encoder_run(e, job->tokens.ids, &length, 1, length, job->gaps.ids));
    return values_read(&e->ctx, e->output, 0, gaps * padded, job->logits);
}

static Status print_token(const Tokenizer *t, int32_t id) {
    int64_t length; // empty, because a model may have more tokens than its tokenizer
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    return print_text(NULL, bytes, length);
}

/* In a list on one line: control characters are escaped as in C. */
static void print_candidate(const Tokenizer *t, int32_t id) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    OWNED char *tame = memory_text_slice((const char *)bytes, (size_t)length);
    utf8_tame(tame, length, false);
    fputc(' ', stderr);
    for (int64_t i = 0; i < length; i++)
        fprintf(stderr, (uint8_t)tame[i] == bytes[i] ? "%c" : "\\%03o", bytes[i]);
}

/* The likeliest tokens of a gap, lower id first among equals, with their probabilities. */
static Status guess(const float *logits, int64_t vocab, Guess *g) {
    int count = 0;
    double sum = 0;
    for (int32_t v = 0; v < vocab; v++) {
        int at = count < SHOWN ? count++ : SHOWN;
        for (; at > 0 && logits[v] > logits[g->ids[at - 1]]; at--)
            if (at < SHOWN) g->ids[at] = g->ids[at - 1];
        if (at < SHOWN) g->ids[at] = v;
    }
    const double largest = (double)logits[g->ids[0]];
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - largest);
    if (!isfinite(sum)) return fail(ERROR_NONFINITE, "the logits of a [MASK] are not finite");
    for (int i = 0; i < count; i++) g->likely[i] = exp((double)logits[g->ids[i]] - largest) / sum;
    return OK;
}

static Status print_filled(const Job *job, const char *text, Guess *guesses) {
    const Config *c = &job->session->config;
    for (int64_t gap = 0; gap < job->gaps.count; gap++) {
        const char *end = strstr(text, mask_text);
        TRY(guess(job->logits + gap * config_padded_vocab(c), c->vocab, &guesses[gap]));
        printf("%.*s", (int)(end - text), text);
        TRY(print_token(job->session->tokenizer, guesses[gap].ids[0]));
        text = end + MASK_BYTES;
    }
    printf("%s\n", text);
    return fflush(stdout) == 0 ? OK : fail(ERROR_FILE, "cannot write the text to standard output");
}

/* Printed below the text; a terminal shows both. */
static void print_candidates(const Job *job, const Guess *guesses) {
    const int64_t vocab = job->session->config.vocab, shown = vocab < SHOWN ? vocab : SHOWN;
    for (int64_t gap = 0; gap < job->gaps.count; gap++) {
        fprintf(stderr, "gap %" PRId64 ":", gap + 1);
        for (int64_t i = 0; i < shown; i++) {
            print_candidate(job->session->tokenizer, guesses[gap].ids[i]);
            fprintf(stderr, " %.3f", guesses[gap].likely[i]);
        }
        fprintf(stderr, "\n");
    }
}

static Status run(Job *job) {
    const char *text = job->own->fill;
    TRY(masked_needs_tokenizer(job->session, "fill"));
    TRY(text_encoder_open(&job->encoder, job->session));
    TRY(read_text(job, text));
    TRY(compute(job));
    OWNED Guess *guesses = memory_array((size_t)job->gaps.count, sizeof *guesses);
    TRY(print_filled(job, text, guesses));
    print_candidates(job, guesses);
    return OK;
}

static void job_close(Job *job) {
    memory_free(job->logits);
    token_list_free(&job->tokens);
    token_list_free(&job->gaps);
    text_encoder_close(&job->encoder);
}

Status fill_text(Session *session, const InferOptions *options, const OptionSet *set) {
    TRY(masked_needs_head(session, options, "fill"));
    CLOSED_BY(job_close)
    Job job = {.session = session, .options = options, .own = options_values(set, &masked_infer)};
    return run(&job);
}
