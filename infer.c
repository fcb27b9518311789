/* infer: runs a model forward. Options in, calls down, report out: a profile of the forward pass,
 * generated text, logits, or what stands in tasks/. */
#include "base/cores.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "tasks/chat/chat_text.h"
#include "tasks/pictures/classify_pictures.h"
#include "tasks/masked/embed_text.h"
#include "tasks/text/evaluate_text.h"
#include "run/infer_benchmark.h"
#include "run/infer_options.h"
#include "run/print_text.h"
#include "run/profiling_sweep.h"
#include "tasks/chat/prompts_text.h"
#include "run/session.h"
#include "run/signals.h"
#include "run/text_profile.h"
#include "tasks/pairs/translate_text.h"
#include "run/stream_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT_LIMIT = 64 << 20 }; // bytes

typedef struct {
    InferOptions options;
    OptionSet set;
    Session session;
    Inference inference;
    Benchmark report;
    int32_t *tokens; // of the profile's passes
} Run;

/* Memory for the largest pass, or for a text of `seq` tokens, in the forms of `fuses`; then weights. */
static Status prepare(Run *run, InferenceUse use, int64_t batch, int64_t seq) {
    Inference *in = &run->inference;
    TRY(inference_open(in, run->session.device, &run->session.config, !run->options.no_cache));
    session_prepare(&run->session, &in->ctx);
    in->use = use;
    in->batch = batch;
    in->seq = seq;
    if (use == INFERENCE_GENERATE) in->generator.window = seq;
    in->logits_dtype = use == INFERENCE_LOGITS && *run->options.logits ? wide_dtype(&in->ctx) : in->ctx.dtype;
    bool profiled = use == INFERENCE_HIDDEN || (use == INFERENCE_LOGITS && !*run->options.logits) ||
                    *run->options.profiling.window;
    if (profiled) TRY(compute_options_peaks(&run->options.compute, &run->set, &in->ctx, &run->report.peaks));
    if (run->options.compare) {
        in->ctx.fuses = 0;
        TRY(inference_measure(in, NULL));
        in->ctx.fuses = run->session.fuses;
    }
    TRY(inference_measure(in, NULL));
    TRY(inference_allocate(in));
    return session_load(&run->session, &in->ctx, &in->model.parameters, (uint64_t)run->options.seed);
}

/* ---- profile ---- */

static int64_t largest(OptionList list, int64_t otherwise) {
    int64_t most = list.count ? list.values[0] : otherwise;
    for (int64_t i = 1; i < list.count; i++)
        if (list.values[i] > most) most = list.values[i];
    return most;
}

/* The passes of one size and form, traced. */
static Status trace_size(Run *run, const BenchmarkSize *size, Form form, TraceList *list) {
    const InferOptions *o = &run->options;
    Inference *in = &run->inference;
    const TraceRun facts =
        profiling_facts(&run->session, "infer", &run->report.peaks, size->batch, size->seq, 1);
    Profiling *profiling = NULL;
    in->ctx.graphs = run->session.graphs;
    in->ctx.fuses = form == FORM_NAIVE ? 0 : run->session.fuses;
    TRY(profiling_open(&o->profiling, &in->ctx, &facts, "", NULL, &profiling));
    profiling_keep(profiling, list);
    Status status = infer_benchmark_trace(in, size, profiling);
    profiling_close(profiling);
    return status;
}

/* --profile: one form, or with --compare both and the differences of their outputs. */
static Status profile_traced(Run *run, const BenchmarkSize *size, const char *suffix) {
    const InferOptions *o = &run->options;
    FILE *file = o->quiet ? NULL : stdout;
    TraceList traces[FORM_COUNT] = {0};
    Difference *differences = NULL;
    int count = 0;
    Status status = OK;
    for (int form = o->compare ? FORM_NAIVE : FORM_FUSED; form <= FORM_FUSED && !status; form++)
        status = trace_size(run, size, (Form)form, &traces[form]);
    if (!status && o->compare)
        status = infer_benchmark_differences(&run->inference, size, run->session.fuses, &differences, &count);
    if (!status && o->compare)
        status = profiling_report_lists(&o->profiling, traces, FORM_COUNT, differences, count, suffix, file);
    else if (!status)
        status = profiling_report_lists(&o->profiling, &traces[FORM_FUSED], 1, NULL, 0, suffix, file);
    for (int form = 0; form < FORM_COUNT; form++) trace_list_free(&traces[form]);
    memory_free(differences);
    return status;
}

static Status profile_timed(Run *run, const BenchmarkSize *size) {
    Inference *in = &run->inference;
    const InferOptions *o = &run->options;
    for (int form = o->compare ? FORM_NAIVE : FORM_FUSED; form <= FORM_FUSED; form++) {
        BenchmarkResult what = {.label = o->compare ? form_name((Form)form) : "",
                                .batch = size->batch,
                                .seq = size->seq,
                                .repeats = o->repeats};
        in->ctx.fuses = form == FORM_NAIVE ? 0 : run->session.fuses;
        TRY(infer_benchmark_measure(in, size->tokens, o->warmup_runs, &what, &run->report,
                                    o->quiet ? NULL : stdout));
    }
    return OK;
}

/* Memory, weights and an input for passes of that size at most. */
static Status prepare_passes(Run *run, int64_t batch, int64_t seq) {
    const Config *c = &run->session.config;
    Task task = c->architecture->task;
    bool hidden =
        task == TASK_MASKED_TOKEN /* its head is for training */ || (task == TASK_CLASS && !c->class_head);
    TRY(prepare(run, hidden ? INFERENCE_HIDDEN : INFERENCE_LOGITS, batch, seq));
    int64_t words = run->inference.input_bytes / (int64_t)sizeof *run->tokens + 1;
    memory_free(run->tokens);
    run->tokens = memory_array((size_t)words, sizeof *run->tokens);
    infer_benchmark_tokens(run->tokens, words, c->architecture->patches ? INT32_MAX : c->vocab,
                           (uint64_t)run->options.seed);
    return OK;
}

/* Pictures of another size have other positions: the model is loaded anew. */
static Status prepare_pictures(Run *run, int64_t batch, int64_t side) {
    inference_close(&run->inference);
    run->inference = (Inference){0};
    TRY(session_scale(&run->session, side));
    return prepare_passes(run, batch, 1);
}

static Status profile_size(void *context, int64_t batch, int64_t seq, const char *suffix) {
    Run *run = context;
    bool sides = run->options.image_sizes.count > 0; // in place of lengths
    if (sides) TRY(prepare_pictures(run, batch, seq));
    const BenchmarkSize size = {run->tokens, batch, sides ? 1 : seq};
    return *run->options.profiling.window ? profile_traced(run, &size, suffix) : profile_timed(run, &size);
}

static Status profile_sizes(Run *run) {
    const InferOptions *o = &run->options;
    bool sides = o->image_sizes.count > 0;
    const SweepSizes sizes = {o->batch_sizes, sides ? o->image_sizes : o->seq_lens, o->batch, o->seq, sides};
    if (!o->batch_sizes.count && !o->seq_lens.count && !o->profiling.sweep)
        return profile_size(run, o->batch, o->seq, "");
    return profiling_sweep(&o->profiling, &sizes, profile_size, run, o->quiet ? NULL : stdout);
}

/* Sizes that cannot be are refused before the first is run. */
static Status check_sides(Run *run) {
    for (int64_t i = 0; i < run->options.image_sizes.count; i++)
        TRY(session_scale(&run->session, run->options.image_sizes.values[i]));
    return OK;
}

static Status profile(Run *run) {
    const InferOptions *o = &run->options;
    const Session *s = &run->session;
    TRY(check_sides(run));
    if (!o->image_sizes.count)
        TRY(prepare_passes(run, largest(o->batch_sizes, o->batch), largest(o->seq_lens, o->seq)));
    if (!o->quiet)
        printf("forward pass of %s, %s, on %s with %s\n", session_model_name(s), session_dtype_name(s),
               s->device->name, s->device->library);
    run->report.unit = s->config.architecture->patches ? "images/s" : "tok/s";
    TRY(profile_sizes(run));
    if (*o->profiling.window) return OK;
    infer_benchmark_print(&run->report, stdout);
    if (!*o->json) return OK;
    return infer_benchmark_write(&run->report, s->device, session_dtype_name(s), o->model, o->json);
}

/* ---- generate ---- */

static Status read_prompt(const char *option, char **prompt, int64_t *length) {
    if (strcmp(option, "-") == 0) return file_read("/dev/stdin", PROMPT_LIMIT, prompt, length);
    *prompt = memory_text(option);
    *length = (int64_t)strlen(option);
    return OK;
}

static Status write_on(Run *run, const TextOptions *options, TextStats *stats) {
    const InferOptions *o = &run->options;
    Inference *in = &run->inference;
    Tokenizer *tokenizer = run->session.tokenizer;
    const TextProfile profile = {.session = &run->session,
                                 .options = &o->profiling,
                                 .peaks = &run->report.peaks,
                                 .compare = o->compare,
                                 .file = o->quiet ? NULL : stderr};
    if (*o->profiling.window)
        return text_profile(&in->ctx, &in->generator, tokenizer, options, &profile, print_text, NULL, stats);
    TRY(stream_text(&in->ctx, &in->generator, tokenizer, options, print_text, NULL, stats));
    return print_text(NULL, "\n", 1);
}

/* The window: --context, or else the prompt and the tokens asked for. */
static Status prepare_text(Run *run, const TextOptions *options) {
    const InferOptions *o = &run->options;
    Session *s = &run->session;
    int64_t window = o->context;
    if (!window) TRY(stream_text_window(s->tokenizer, options, &s->config, &window));
    return prepare(run, INFERENCE_GENERATE, 1, window);
}

static void print_speed(const InferOptions *o, const TextStats *stats) {
    double prefill = stats->prefill_seconds, decode = stats->decode_seconds;
    fprintf(stderr,
            "prefill %" PRId64 " tokens in %.2f ms (%.0f tok/s); decode %" PRId64 " tokens in %.2f ms (%.0f "
            "tok/s)%s\n",
            stats->prompt_tokens, 1e3 * prefill, prefill > 0 ? (double)stats->prompt_tokens / prefill : 0,
            stats->tokens, 1e3 * decode,
            stats->tokens > 1 && decode > 0 ? (double)(stats->tokens - 1) / decode : 0,
            o->no_cache ? ", without a cache" : "");
}

static Status generate(Run *run) {
    const InferOptions *o = &run->options;
    char *prompt = NULL;
    TextStats stats;
    TextOptions options = {.tokens = o->tokens, .stop = o->stop, .sampler = infer_options_sampler(o)};
    TRY(read_prompt(o->prompt, &prompt, &options.prompt_length));
    options.prompt = prompt;
    Status status = prepare_text(run, &options);
    if (!status && !o->quiet) status = print_text(NULL, prompt, options.prompt_length);
    if (!status) status = write_on(run, &options, &stats);
    memory_free(prompt);
    TRY(status);
    if (stats.left_out)
        fprintf(stderr,
                "PROMPT CUT: of its %" PRId64 " tokens only the last %" PRId64
                " were read, which is the context\n",
                stats.left_out + stats.prompt_tokens, stats.prompt_tokens);
    if (!o->quiet) print_speed(o, &stats);
    return OK;
}

/* ---- logits ---- */

static Status write_logits(Run *run, int64_t count) {
    Inference *in = &run->inference;
    int64_t vocab = in->model.config.vocab, padded = config_padded_vocab(&in->model.config);
    float *row = memory_array((size_t)vocab, sizeof *row);
    SafetensorsEntry entry = {.name = "logits", .type = SAFE_F32, .rank = 2, .d = {count, vocab}};
    SafetensorsWriter *writer = NULL;
    Status status = safetensors_writer_open(run->options.logits, &entry, 1, NULL, 0, &writer);
    for (int64_t i = 0; i < count && !status; i++) {
        status = values_read(&in->ctx, in->logits, i * padded, vocab, row);
        if (!status) status = safetensors_writer_append(writer, row, vocab * (int64_t)sizeof *row);
    }
    memory_free(row);
    if (!status) return safetensors_writer_close(writer);
    safetensors_writer_abandon(writer);
    return status;
}

static Status logits(Run *run) {
    OptionList ids = run->options.ids;
    const Config *c = &run->session.config;
    if (ids.count > c->context)
        return fail(ERROR_USAGE, "--ids has %" PRId64 " tokens, but the model's context is %" PRId64,
                    ids.count, c->context);
    for (int64_t i = 0; i < ids.count; i++)
        if (ids.values[i] >= c->vocab)
            return fail(ERROR_USAGE, "--ids: token %" PRId64 " is outside the vocabulary of %" PRId64,
                        ids.values[i], c->vocab);
    TRY(prepare(run, INFERENCE_LOGITS, 1, ids.count));
    int32_t *tokens = memory_array((size_t)ids.count, sizeof *tokens);
    for (int64_t i = 0; i < ids.count; i++) tokens[i] = (int32_t)ids.values[i];
    Status status = inference_logits(&run->inference, tokens, 1, ids.count);
    memory_free(tokens);
    TRY(status);
    return write_logits(run, ids.count);
}

static Status check_lengths(Run *run) {
    InferOptions *o = &run->options;
    int64_t context = run->session.config.context;
    bool patches = run->session.config.architecture->patches;
    if (!o->seq) o->seq = patches ? 1 : context; // a picture is one
    int64_t seq = largest(o->seq_lens, o->seq);
    if (patches && seq > 1)
        return fail(ERROR_USAGE,
                    "a length of %" PRId64 " has no effect on pictures; a --sweep has --image-sizes", seq);
    if (o->context > context)
        return fail(ERROR_USAGE, "--context=%" PRId64 " is more than the model's %" PRId64, o->context,
                    context);
    if (seq <= context) return OK;
    return fail(ERROR_USAGE,
                "a sequence of %" PRId64 " tokens is longer than the model's context of %" PRId64, seq,
                context);
}

/* What goes from token to token needs a model that has learned that. */
static Status check_task(const Run *run, InferMode mode) {
    const Architecture *a = run->session.config.architecture;
    TRY(option_needs(&run->set, "skip-broken", a->patches, "a vision Transformer"));
    TRY(option_needs(&run->set, "workers", a->patches, "a vision Transformer"));
    if (mode == INFER_CLASSIFY && !run->session.config.class_head)
        return fail(ERROR_USAGE, "--classify needs a vision Transformer with a head, but %s has none",
                    run->options.model);
    bool masked = a->task == TASK_MASKED_TOKEN;
    if (masked && !run->session.config.head_transform && (mode == INFER_FILL || mode == INFER_LOGITS))
        return fail(ERROR_USAGE,
                    "--%s needs a head for masked tokens, and the model in %s has none: --embed needs none, "
                    "./train --new-head draws one",
                    infer_options_asker(mode), run->options.model);
    bool writes = mode == INFER_GENERATE || mode == INFER_CHAT || mode == INFER_PROMPTS;
    bool continues =
        writes || (mode == INFER_LOGITS && !masked) || (mode == INFER_EVALUATE && a->task != TASK_CLASS);
    if (continues && a->task != TASK_NEXT_TOKEN)
        return fail(ERROR_USAGE, "--%s needs a decoder-only model, but %s is %s: see --%s",
                    infer_options_asker(mode), run->options.model, a->description,
                    masked                  ? "fill or --embed"
                    : a->task == TASK_CLASS ? "classify"
                                            : "translate");
    if (!writes || run->session.tokenizer) return OK;
    return fail(ERROR_USAGE, "--%s needs a tokenizer, but %s has none; name one with --tokenizer=FOLDER",
                infer_options_asker(mode), run->options.model);
}

/* What of the model is not what it may look like. A preset has no weights: what it says looks like a result,
 * and means nothing. */
static void warn_of_weights(const Run *run, InferMode mode) {
    if (run->session.config.other_head && !run->options.quiet)
        fprintf(stderr, "%s: its head for %s is not used\n", session_model_name(&run->session),
                run->session.config.other_head);
    if (run->session.folder || mode == INFER_PROFILE || *run->options.profiling.window) return;
    fprintf(
        stderr,
        "RANDOM WEIGHTS: %s is a preset and has learned nothing, so what follows means nothing; a trained "
        "model is a folder: --model=FOLDER\n",
        run->options.model);
}

static Status run_all(Run *run, int argc, char **argv) {
    bool done = false;
    TRY(infer_options_read(argc, argv, &run->options, &run->set, &done));
    if (done) return OK;
    profiling_prepare(&run->options.profiling);
    TRY(session_open(&run->session, run->options.model, NULL, run->options.tokenizer, &run->options.compute));
    TRY(check_lengths(run));
    InferMode mode = infer_options_mode(&run->options);
    TRY(check_task(run, mode));
    TRY(infer_options_check_outputs(&run->options));
    warn_of_weights(run, mode);
    const InferOptions *o = &run->options;
    Session *s = &run->session;
    bool pictures = s->config.architecture->patches;
    switch (mode) {
    case INFER_GENERATE: return generate(run);
    case INFER_CHAT: return chat_text(s, o);
    case INFER_PROMPTS: return prompts_text(s, o);
    case INFER_EVALUATE: return pictures ? evaluate_pictures(s, o) : evaluate_text(s, o);
    case INFER_LOGITS: return logits(run);
    case INFER_TRANSLATE: return translate_text(s, o);
    case INFER_EMBED: return pictures ? embed_pictures(s, o) : embed_text(s, o);
    case INFER_FILL: return fill_text(s, o);
    case INFER_CLASSIFY: return classify_pictures(s, o);
    case INFER_PROFILE: return profile(run);
    }
    return fail(ERROR_INTERNAL, "no such mode: %d", (int)mode);
}

int main(int argc, char **argv) {
    cores_share(argv);
    static Run run;
    signals_prepare();
    Status status = run_all(&run, argc, argv);
    memory_free(run.tokens);
    infer_benchmark_free(&run.report);
    inference_close(&run.inference);
    session_close(&run.session);
    options_close(&run.set);
    return status_exit(status, "infer");
}
