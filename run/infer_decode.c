#include "run/infer_decode.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/stats.h"
#include "base/wrap.h"
#include "model/architectures.h"
#include "run/batch_generator.h"
#include "run/runner.h"

#include <inttypes.h>

typedef struct {
    const InferOptions *options;
    Ctx ctx;
    Transformer model;
    BatchGenerator generator;
    int64_t batch, begun; // texts of this size; those that have begun
    int64_t steps;        // steps of this size that are done
    double time;          // of the last step's end
    double *ms;           // (decode) times of the last steps
} Decoding;

/* A prompt of one token, so that all texts have the same length at every step. */
static Status next_text(void *context, BatchRow *row, bool *any) {
    Decoding *d = context;
    const SamplerOptions greedy = {.top_p = 1, .repeat_penalty = 1};
    const int64_t vocab = d->model.config.vocab;
    *any = d->begun < d->batch;
    if (!*any) return OK;
    row->number = d->begun++;
    row->prompt = 1;
    token_list_add(&row->text, (int32_t)random_below((uint64_t)d->options->seed, (uint64_t)row->number, 0,
                                                     (uint64_t)vocab));
    return sampler_open(vocab, &greedy, &row->sampler);
}

/* No token ends a text. A step ends with the token of the last text. */
static bool end_step(void *context, const BatchRow *row, int32_t token) {
    Decoding *d = context;
    (void)token;
    if (row->number != d->batch - 1) return false;
    const double now = device_clock();
    const int64_t timed = d->steps++ - d->options->seq;
    if (timed >= 0) d->ms[timed] = 1e3 * (now - d->time);
    d->time = now;
    return false;
}

static Status drop_text(void *context, BatchRow *row) {
    (void)context;
    (void)row;
    return OK;
}

static Status rehearse(Ctx *ctx, void *program) {
    Decoding *d = program;
    TRY(transformer_take(ctx, &d->model, false));
    return batch_generator_take(ctx, &d->generator);
}

static Status run(Decoding *d, const Session *s, OptionList batches, FILE *file) {
    const InferOptions *o = d->options;
    int64_t most = 1;
    double first = 0;
    for (int64_t i = 0; i < batches.count; i++) most = batches.values[i] > most ? batches.values[i] : most;
    TRY(runner_open(s, &d->ctx, &d->model));
    batch_generator_open(&d->model, most, o->seq + o->decode, &d->generator);
    TRY(runner_start(&(Runner){s, &d->ctx, &d->model, rehearse, d, false, o->seed, NULL}));
    if (!o->quiet)
        print_report("", 0, file, "decoding %" PRId64 " tokens after %" PRId64 " with %s, %s, on %s with %s",
                     o->decode, o->seq, session_model_name(s), session_dtype_name(s), s->device->name,
                     s->device->library);
    fprintf(file, "\n%6s %10s %19s %10s %16s\n", "batch", "ms a step", "spread", "tok/s", "times the first");
    for (int64_t i = 0; i < batches.count; i++) {
        d->batch = batches.values[i];
        d->begun = d->steps = 0;
        TRY(batch_generator_run(&d->ctx, &d->generator,
                                &(BatchTexts){.context = d,
                                              .tokens = o->seq + o->decode,
                                              .next = next_text,
                                              .ends = end_step,
                                              .finish = drop_text}));
        const Stats ms = stats_make(d->ms, o->decode);
        const double rate = 1e3 * (double)d->batch / ms.median;
        if (!i) first = rate;
        fprintf(file, "%6" PRId64 " %10.3f %9.3f-%9.3f %10.0f %16.2f\n", d->batch, ms.median, ms.least,
                ms.most, rate, rate / first);
        fflush(file);
    }
    return OK;
}

static void decoding_close(Decoding *d) {
    batch_generator_close(&d->generator);
    transformer_close(&d->model);
    if (d->ctx.device) ctx_close(&d->ctx);
    memory_free(d->ms);
}

Status infer_decode(const Session *session, const InferOptions *o, FILE *file) {
    CLOSED_BY(decoding_close)
    Decoding d = {.options = o, .ms = memory_array((size_t)o->decode, sizeof *d.ms)};
    int64_t batch = o->batch;
    const Architecture *a = session->config.architecture;
    if (a->task != TASK_NEXT_TOKEN)
        return fail(ERROR_USAGE, "--decode needs a decoder-only model, but %s is %s", o->model,
                    a->description);
    return run(&d, session, o->batch_sizes.count ? o->batch_sizes : (OptionList){&batch, 1}, file);
}
