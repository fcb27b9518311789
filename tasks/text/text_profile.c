#include "tasks/text/text_profile.h"

#include "base/memory.h"
#include "run/profiling.h"
#include "profile/window.h"

#include <inttypes.h>

typedef struct {
    const TextProfile *what;
    Generator *generator;
    Tokenizer *tokenizer;
    TextOptions write;
    TextSink sink;
    void *context;
    TextStats *stats;
    TokenList prompt;
    TraceList prefill[FORM_COUNT], decode[FORM_COUNT];
    Difference *differences; // differences of the prefill's outputs between the forms
    int difference_count;
} Job;

Status text_profile_check(const ProfilingOptions *options, int64_t tokens) {
    Window window;
    TRY(window_parse(options->window, &window));
    int64_t last = window_last_recorded(&window);
    if (last < tokens) return OK;
    return fail(ERROR_USAGE,
                "--profile=%.100s records up to step %" PRId64 ", and each token after the first is a step: "
                "give --tokens=%" PRId64 " or an earlier window",
                options->window, last, last + 1);
}

static Status open_profiling(Job *job, Ctx *ctx, const ProfilingOptions *options, const char *step,
                             int64_t tokens, TraceList *list, Profiling **profiling) {
    TraceRun facts = profiling_facts(job->what->session, "infer", job->what->peaks, 1, tokens, 1);
    facts.step = step;
    ctx->graphs = job->what->session->graphs;
    TRY(profiling_open(options, ctx, &facts, "", NULL, profiling));
    profiling_keep(*profiling, list);
    return OK;
}

/* ---- the prompt ---- */

/* If the prompt is longer than the context, only its end is read. */
static int64_t prompt_read(const Job *job) {
    int64_t context = job->generator->model->config.context;
    return job->prompt.count < context ? job->prompt.count : context;
}

static Status read_prompt(Ctx *ctx, void *program, StepCost *cost) {
    Job *job = program;
    const float *logits;
    (void)cost;
    STEP_SCOPE(ctx) {
        TRY(generator_start(job->generator, job->prompt.ids, job->prompt.count));
        TRY(generator_logits(ctx, job->generator, &logits));
    }
    return OK;
}

static Status trace_prefill(Job *job, Ctx *ctx, TraceList *list) {
    ProfilingOptions options = *job->what->options;
    CLOSED_BY(profiling_release) Profiling *profiling = NULL;
    options.window = PREFILL_WINDOW;
    TRY(open_profiling(job, ctx, &options, "prefill", prompt_read(job), list, &profiling));
    for (int64_t step = 1; !profiling_done(profiling); step++)
        TRY(profiling_step(profiling, ctx, step, read_prompt, job, NULL));
    return profiling_finish(profiling, ctx);
}

/* ---- the text ---- */

static Status trace_decode(Job *job, Ctx *ctx, TraceList *list) {
    CLOSED_BY(profiling_release) Profiling *profiling = NULL;
    TextOptions write = job->write;
    TRY(open_profiling(job, ctx, job->what->options, "decoding step", 1, list, &profiling));
    write.profiling = profiling;
    TRY(stream_text(ctx, job->generator, job->tokenizer, &write, job->sink, job->context, job->stats));
    return profiling_finish(profiling, ctx);
}

static Status discard(void *context, const void *bytes, int64_t count) {
    (void)context;
    (void)bytes;
    (void)count;
    return OK;
}

static Status run_form(Job *job, Ctx *ctx, Form form) {
    ctx->fuses = form == FORM_NAIVE ? 0 : job->what->session->fuses;
    TRY(trace_prefill(job, ctx, &job->prefill[form]));
    return trace_decode(job, ctx, &job->decode[form]);
}

/* Compares prefill outputs only: the fused form decodes a token in one operation, which the naive form does
 * not have. */
static Status take_differences(Job *job, Ctx *ctx) {
    if (job->prompt.count == 1) return OK;
    return profiling_differences(ctx, job->what->session->fuses, read_prompt, job, &job->differences,
                                 &job->difference_count);
}

/* The naive form first; the text of the fused one is shown. */
static Status run_forms(Job *job, Ctx *ctx) {
    TextSink sink = job->sink;
    TRY(stream_text_prompt(job->tokenizer, &job->write, &job->prompt));
    job->sink = discard;
    if (job->what->compare) TRY(run_form(job, ctx, FORM_NAIVE));
    if (job->what->compare) TRY(take_differences(job, ctx));
    job->sink = sink;
    return run_form(job, ctx, FORM_FUSED);
}

/* ---- reports ---- */

static Status report(const Job *job, const TraceList lists[FORM_COUNT], const char *title,
                     const char *suffix) {
    bool both = job->what->compare, prefill = lists == job->prefill;
    if (job->what->file) fprintf(job->what->file, "\n==== %s ====\n", title);
    return profiling_report_lists(job->what->options, both ? lists : &lists[FORM_FUSED], both ? 2 : 1,
                                  prefill ? job->differences : NULL, prefill ? job->difference_count : 0,
                                  suffix, job->what->file);
}

static Status report_all(const Job *job) {
    char title[128];
    snprintf(title, sizeof title, "prefill: the prompt, %" PRId64 " tokens at once", prompt_read(job));
    TRY(report(job, job->prefill, title, "_prefill"));
    if (!job->decode[FORM_FUSED].count)
        return fail(ERROR_USAGE,
                    "--profile=%.100s: the text ended after %" PRId64
                    " tokens, before the first that is to be "
                    "recorded; give an earlier window, or another --seed or --stop",
                    job->what->options->window, job->stats->tokens);
    return report(job, job->decode, "decoding: one token a step", "_decode");
}

static void job_close(Job *job) {
    token_list_free(&job->prompt);
    memory_free(job->differences);
    for (int form = 0; form < FORM_COUNT; form++) {
        trace_list_free(&job->prefill[form]);
        trace_list_free(&job->decode[form]);
    }
}

Status text_profile(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                    const TextProfile *profile, TextSink sink, void *context, TextStats *stats) {
    CLOSED_BY(job_close)
    Job job = {.what = profile,
               .generator = generator,
               .tokenizer = tokenizer,
               .write = *options,
               .sink = sink,
               .context = context,
               .stats = stats};
    TRY(run_forms(&job, ctx));
    TRY(sink(context, "\n", 1));
    return report_all(&job);
}
