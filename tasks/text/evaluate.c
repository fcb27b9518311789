#include "tasks/text/infer.h"

#include "run/print_text.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "tasks/text/weights_error.h"
#include "run/inference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The mean loss, by natural logarithm, over all windows. The last batch continues into the next epoch, whose
 * targets are ignored. */
static Status find_mean(Inference *in, Loader *loader, int64_t *tokens, double *mean) {
    const int64_t B = in->batch, T = in->seq, windows = loader_windows(loader);
    OWNED int32_t *targets = memory_array((size_t)(B * T), sizeof *targets);
    double all = 0;
    *tokens = windows * T;
    for (int64_t first = 0; first < windows; first += B) {
        const int64_t counted = (windows - first < B ? windows - first : B) * T;
        Batch batch;
        double sum = 0;
        TRY(loader_next(loader, &batch));
        for (int64_t i = 0; i < B * T; i++) targets[i] = i < counted ? batch.targets[i] : -1;
        TRY(inference_loss(in, batch.inputs, targets, B, T, &sum));
        all += sum;
    }
    *mean = all / (double)*tokens;
    return OK;
}

/* Writes the results; `bits` per byte is NaN if the number of bytes is unknown, `e` NULL without --compare.
 */
static Status write_json(const InferOptions *o, const char *data, int64_t tokens, double mean, double bits,
                         const WeightsError *e) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_write_open(&w, '{');
    json_member_text(&w, "data", data);
    json_member_integer(&w, "tokens", tokens);
    json_member_number(&w, "loss", mean);
    json_member_number(&w, "perplexity", exp(mean));
    json_member_number(&w, "bits_per_byte", bits);
    if (e) {
        json_member_number(&w, "float_loss", e->loss[WEIGHTS_PLAIN]);
        json_member_number(&w, "float_perplexity", exp(e->loss[WEIGHTS_PLAIN]));
        json_member_number(&w, "logits_most", e->most_difference);
        json_member_number(&w, "logits_mean", e->mean_difference);
        json_member_number(&w, "kl_divergence", e->divergence);
        json_member_number(&w, "float_ms", e->ms[WEIGHTS_PLAIN]);
        json_member_number(&w, "ms", e->ms[WEIGHTS_PACKED]);
        json_member_integer(&w, "float_bytes", (int64_t)e->bytes[WEIGHTS_PLAIN]);
        json_member_integer(&w, "bytes", (int64_t)e->bytes[WEIGHTS_PACKED]);
    }
    json_write_close(&w, '}');
    return json_writer_save(&w, o->json);
}

static Status report(const InferOptions *o, const char *data, int64_t tokens, double mean,
                     const TokenSource *source, const WeightsError *e) {
    const int64_t bytes = tokens_text_bytes(source);
    double bits = NAN;
    if (bytes > 0) bits = mean / log(2.0) * (double)tokens_count(source) / (double)bytes;
    print_name(data, stdout);
    printf(": %" PRId64 " tokens, mean loss %.6f, perplexity %.4f", tokens, mean, exp(mean));
    if (bytes > 0) printf(", %.4f bits per byte", bits);
    printf("\n");
    if (*o->json) TRY(write_json(o, data, tokens, mean, bits, e));
    if (tokens_raw(source) && !o->quiet) {
        print_name(tokens_raw(source), stderr);
        fprintf(stderr, " is read as plain text: its keys, quotes and commas count, too\n");
    }
    if (isfinite(mean)) return OK;
    return fail(ERROR_NONFINITE, "the mean loss on %s is not finite", data);
}

static Status run(const Session *s, const InferOptions *o, const char *data, int64_t seq, TokenSource *source,
                  Inference *in) {
    const LoaderOptions options = {.batch = o->batch, .seq = seq};
    CLOSED_BY(loader_release) Loader *loader = NULL;
    int64_t tokens;
    double mean;
    TRY(inference_open(in, s, true));
    in->use = INFERENCE_LOSS;
    in->batch = o->batch;
    in->seq = seq;
    TRY(inference_start(in, s, false, o->seed));
    TRY(loader_open_windows(&options, source, &loader));
    TRY(find_mean(in, loader, &tokens, &mean));
    return report(o, data, tokens, mean, source, NULL);
}

static Status compare(const Session *s, const InferOptions *o, const char *data, const LoaderOptions *options,
                      const TokenSource *source) {
    WeightsError e;
    TRY(weights_error_measure(s, o->seed, options, source, &e));
    TRY(report(o, data, e.tokens, e.loss[WEIGHTS_PACKED], source, &e));
    weights_error_print(&e, s, stdout);
    return OK;
}

Status evaluate_text(Session *session, const InferOptions *options, const OptionSet *set) {
    const TextInfer *own = options_values(set, &text_infer);
    const TokenOptions tokens = {
        .tokenizer = session->tokenizer, .vocab = session->config.vocab, .field = own->field};
    CLOSED_BY(tokens_release) TokenSource *source = NULL;
    TRY(tokens_open(own->eval, &tokens, &source));
    /* A text shorter than the context is one window. */
    int64_t seq = options->seq, most = tokens_count(source) - 1;
    if (!options_given(set, "seq") && most >= 1 && most < seq) seq = most;
    /* Logits of a whole batch need much memory. */
    const LoaderOptions windows = {.batch = options_given(set, "batch") ? options->batch : 1, .seq = seq};
    if (options->compare) return compare(session, options, own->eval, &windows, source);
    CLOSED_BY(inference_close) Inference in = {0};
    return run(session, options, own->eval, seq, source, &in);
}
