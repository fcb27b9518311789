#include "tasks/text/weights_error.h"

#include "base/memory.h"
#include "run/inference.h"
#include "run/turns.h"

#include <math.h>

typedef struct {
    Inference models[WEIGHTS_KINDS];
    int64_t batch, seq;
    double *ms[WEIGHTS_KINDS];    // (passes)
    float *logits[WEIGHTS_KINDS]; // (vocab) of one token
    WeightsError *error;
} Pairs;

static void close_pairs(Pairs *p) {
    for (int kind = 0; kind < WEIGHTS_KINDS; kind++) {
        inference_close(&p->models[kind]);
        memory_free(p->ms[kind]);
        memory_free(p->logits[kind]);
    }
}

static Status open_model(Pairs *p, int kind, const Session *session, int64_t seed) {
    Inference *in = &p->models[kind];
    Session own = *session;
    if (kind == WEIGHTS_PLAIN) own.packed = F32;
    TRY(inference_open(in, &own, true));
    in->use = INFERENCE_LOGITS;
    in->batch = p->batch;
    in->seq = p->seq;
    in->logits_dtype = wide_dtype(&in->ctx);
    TRY(inference_start(in, &own, false, seed));
    p->error->bytes[kind] = in->ctx.arenas[ARENA_PARAMETERS].used;
    p->logits[kind] = memory_array((size_t)session->config.vocab, sizeof *p->logits[kind]);
    return OK;
}

static double log_sum_exp(const float *x, int64_t count) {
    double most = x[0], sum = 0;
    for (int64_t i = 1; i < count; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < count; i++) sum += exp(x[i] - most);
    return most + log(sum);
}

/* Adds to the sums, which take_means divides. KL(plain || packed) = sum of p * (log p - log q). */
static void add_token(WeightsError *e, float *const *logits, int64_t vocab, int32_t target) {
    const float *plain = logits[WEIGHTS_PLAIN], *packed = logits[WEIGHTS_PACKED];
    const double plain_sum = log_sum_exp(plain, vocab), packed_sum = log_sum_exp(packed, vocab);
    for (int64_t v = 0; v < vocab; v++) {
        const double difference = (double)plain[v] - (double)packed[v], log_p = plain[v] - plain_sum;
        e->most_difference = fmax(e->most_difference, fabs(difference));
        e->mean_difference += fabs(difference);
        e->divergence += exp(log_p) * (difference - plain_sum + packed_sum);
    }
    e->loss[WEIGHTS_PLAIN] += plain_sum - plain[target];
    e->loss[WEIGHTS_PACKED] += packed_sum - packed[target];
    e->tokens++;
}

static Status run_pass(Pairs *p, int kind, const int32_t *tokens, double *ms) {
    Inference *in = &p->models[kind];
    const double start = device_clock();
    TRY(inference_logits(in, tokens, p->batch, p->seq));
    TRY(in->ctx.device->synchronize(in->ctx.device));
    *ms = 1e3 * (device_clock() - start);
    return OK;
}

/* Both models in turns. The first pass also warms up. */
static Status run_batch(Pairs *p, int64_t pass, const Batch *batch, int64_t tokens) {
    const Config *c = &p->models[0].model.config;
    for (int warm = pass == 0; warm >= 0; warm--)
        for (int turn = 0; turn < WEIGHTS_KINDS; turn++) {
            const int kind = turns_path(pass, turn, WEIGHTS_KINDS);
            TRY(run_pass(p, kind, batch->inputs, &p->ms[kind][pass]));
        }
    for (int64_t i = 0; i < tokens; i++) {
        for (int kind = 0; kind < WEIGHTS_KINDS; kind++)
            TRY(values_read(&p->models[kind].ctx, p->models[kind].logits, i * config_padded_vocab(c),
                            c->vocab, p->logits[kind]));
        add_token(p->error, p->logits, c->vocab, batch->targets[i]);
    }
    return OK;
}

static void take_means(WeightsError *e, int64_t vocab) {
    const double tokens = (double)e->tokens;
    for (int kind = 0; kind < WEIGHTS_KINDS; kind++) e->loss[kind] /= tokens;
    e->mean_difference /= tokens * (double)vocab;
    e->divergence /= tokens;
}

Status weights_error_measure(const Session *session, int64_t seed, const LoaderOptions *options,
                             const TokenSource *source, WeightsError *error) {
    CLOSED_BY(loader_release) Loader *loader = NULL;
    CLOSED_BY(close_pairs) Pairs p = {.batch = options->batch, .seq = options->seq, .error = error};
    *error = (WeightsError){0};
    TRY(loader_open_windows(options, source, &loader));
    const int64_t windows = loader_windows(loader), passes = (windows + p.batch - 1) / p.batch;
    for (int kind = 0; kind < WEIGHTS_KINDS; kind++) {
        TRY(open_model(&p, kind, session, seed));
        p.ms[kind] = memory_array((size_t)passes, sizeof *p.ms[kind]);
    }
    for (int64_t pass = 0; pass < passes; pass++) {
        const int64_t left = windows - pass * p.batch; // the last batch continues into the next epoch
        Batch batch;
        TRY(loader_next(loader, &batch));
        TRY(run_batch(&p, pass, &batch, (left < p.batch ? left : p.batch) * p.seq));
    }
    take_means(error, session->config.vocab);
    error->speed = pairs_ratio(p.ms[WEIGHTS_PLAIN], p.ms[WEIGHTS_PACKED], passes);
    for (int kind = 0; kind < WEIGHTS_KINDS; kind++) error->ms[kind] = median(p.ms[kind], passes);
    return OK;
}

void weights_error_print(const WeightsError *e, const Session *session, FILE *file) {
    const char *const names[] = {session_dtype_name(session), dtype_name(session->packed)};
    fprintf(file, "\n%-8s %12s %14s %12s %12s\n", "weights", "ms a pass", "bytes", "mean loss", "perplexity");
    for (int kind = 0; kind < WEIGHTS_KINDS; kind++)
        fprintf(file, "%-8s %12.3f %14zu %12.6f %12.4f\n", names[kind], e->ms[kind], e->bytes[kind],
                e->loss[kind], exp(e->loss[kind]));
    fprintf(file, "%s is %.2f times as fast (95%% interval %.2f to %.2f)\n", names[WEIGHTS_PACKED],
            e->speed.median, e->speed.low, e->speed.high);
    fprintf(file, "logits differ by at most %.6g, on average by %.6g; KL divergence %.6g nats a token\n",
            e->most_difference, e->mean_difference, e->divergence);
}
