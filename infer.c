/* infer: runs a model forward: profiles the forward pass, or runs a command of a task (tasks/task.h). */
#define _GNU_SOURCE
#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/wrap.h"
#include "model/checkpoint.h"
#include "run/infer_benchmark.h"
#include "run/infer_decode.h"
#include "run/operation_alone.h"
#include "run/profiling_sweep.h"
#include "run/signals.h"
#include "tasks/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DECODE_AFTER = 32 }; // --seq for --decode

typedef struct {
    InferOptions options;
    OptionSet set;
    Session session;
    Inference inference;
    Benchmark report;
    int32_t *tokens; // input of the profile's passes
} Run;

/* The command that runs if none is given: profile(), below. */
static const Command benchmark = {
    .reads = "batch-sizes seq-lens image-sizes repeats warmup-runs compare json profile sweep batch seq "
             "op pass width save decode"};

/* Memory for the largest pass, in the forms of `fuses`; then weights. */
static Status prepare(Run *run, InferenceUse use, int64_t batch, int64_t seq) {
    Inference *in = &run->inference;
    TRY(inference_open(in, &run->session, true));
    in->use = use;
    in->batch = batch;
    in->seq = seq;
    in->logits_dtype = in->ctx.dtype;
    TRY(compute_options_peaks(&run->options.compute, &run->set, &in->ctx, &run->report.peaks));
    return inference_start(in, &run->session, run->options.compare, run->options.seed);
}

/* ---- profile ---- */

static int64_t largest(OptionList list, int64_t otherwise) {
    int64_t most = list.count ? list.values[0] : otherwise;
    for (int64_t i = 1; i < list.count; i++)
        if (list.values[i] > most) most = list.values[i];
    return most;
}

/* Traces the passes of one size and form. */
static Status trace_size(Run *run, const BenchmarkSize *size, Form form, TraceList *list) {
    const InferOptions *o = &run->options;
    Inference *in = &run->inference;
    const TraceRun facts =
        profiling_facts(&run->session, "infer", &run->report.peaks, size->batch, size->seq, 1);
    CLOSED_BY(profiling_release) Profiling *profiling = NULL;
    in->ctx.graphs = run->session.graphs;
    in->ctx.fuses = form == FORM_NAIVE ? 0 : run->session.fuses;
    TRY(profiling_open(&o->profiling, &in->ctx, &facts, "", NULL, &profiling));
    profiling_keep(profiling, list);
    return infer_benchmark_trace(in, size, profiling);
}

/* --profile: one form, or with --compare both forms and the differences of their outputs. */
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

/* Prepares memory, weights and an input for passes of at most that size. */
static Status prepare_passes(Run *run, int64_t batch, int64_t seq) {
    const Config *c = &run->session.config;
    Task task = c->architecture->task;
    bool hidden = task == TASK_MASKED_TOKEN /* this head is used only in training */ ||
                  (task == TASK_CLASS && !c->class_head);
    TRY(prepare(run, hidden ? INFERENCE_HIDDEN : INFERENCE_LOGITS, batch, seq));
    int64_t words = run->inference.input_bytes / (int64_t)sizeof *run->tokens + 1;
    memory_free(run->tokens);
    run->tokens = memory_array((size_t)words, sizeof *run->tokens);
    infer_benchmark_tokens(run->tokens, words, c->architecture->patches ? INT32_MAX : c->vocab,
                           (uint64_t)run->options.seed);
    return OK;
}

/* Pictures of another size have other positions, so the model is loaded again. */
static Status prepare_pictures(Run *run, int64_t batch, int64_t side) {
    inference_close(&run->inference);
    run->inference = (Inference){0};
    TRY(session_scale(&run->session, side));
    return prepare_passes(run, batch, 1);
}

static Status profile_size(void *context, int64_t batch, int64_t seq, const char *suffix) {
    Run *run = context;
    bool sides = run->options.image_sizes.count > 0; // instead of lengths
    if (sides) TRY(prepare_pictures(run, batch, seq));
    const BenchmarkSize size = {run->tokens, batch, sides ? 1 : seq};
    if (*run->options.profiling.window) return profile_traced(run, &size, suffix);
    return infer_benchmark_measure(&run->inference, &run->session, &run->options, &size, &run->report);
}

static Status profile_sizes(Run *run) {
    const InferOptions *o = &run->options;
    bool sides = o->image_sizes.count > 0;
    const SweepSizes sizes = {o->batch_sizes, sides ? o->image_sizes : o->seq_lens, o->batch, o->seq, sides};
    if (!o->batch_sizes.count && !o->seq_lens.count && !o->profiling.sweep)
        return profile_size(run, o->batch, o->seq, "");
    return profiling_sweep(&o->profiling, &sizes, profile_size, run, o->quiet ? NULL : stdout);
}

/* Checks all sizes before the first is run. */
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
        print_report("", 0, stdout, "forward pass of %s, %s, on %s with %s", session_model_name(s),
                     session_dtype_name(s), s->device->name, s->device->library);
    run->report.unit = s->config.architecture->patches ? "images/s" : "tok/s";
    TRY(profile_sizes(run));
    if (*o->profiling.window) return OK;
    infer_benchmark_print(&run->report, stdout);
    if (!*o->json) return OK;
    return infer_benchmark_write(&run->report, s->device, session_dtype_name(s), o->model, o->json);
}

/* --save: a folder that exists is kept as it is. */
static Status save(Run *run) {
    const char *folder = run->options.save;
    const Session *s = &run->session;
    Inference *in = &run->inference;
    PathKind kind;
    TRY(path_kind(folder, &kind));
    if (kind != PATH_ABSENT) return fail(ERROR_FILE, "%s exists; --save writes a new folder", folder);
    TRY(inference_open(in, s, true));
    in->use = INFERENCE_HIDDEN;
    in->batch = in->seq = 1;
    TRY(inference_start(in, s, false, run->options.seed));
    TRY(checkpoint_save(&in->ctx, folder, &s->config, &in->model.parameters, s->tokenizer, NULL));
    if (!run->options.quiet) printf("saved %s\n", folder);
    return OK;
}

static Status check_lengths(Run *run) {
    InferOptions *o = &run->options;
    int64_t context = run->session.config.context;
    bool patches = run->session.config.architecture->patches;
    if (!o->seq) o->seq = patches ? 1 : o->decode ? DECODE_AFTER : context; // a picture has length 1
    int64_t seq = largest(o->seq_lens, o->seq) + o->decode;
    if (patches && seq > 1)
        return fail(ERROR_USAGE,
                    "a length of %" PRId64 " has no effect on pictures; a --sweep has --image-sizes", seq);
    if (seq <= context) return OK;
    return fail(ERROR_USAGE,
                "a sequence of %" PRId64 " tokens is longer than the model's context of %" PRId64, seq,
                context);
}

/* Warns if the output may mislead: a preset has no trained weights, so its results mean nothing. */
static void warn_of_weights(const Run *run, const Command *command) {
    if (run->session.config.other_head && !run->options.quiet)
        fprintf(stderr, "%s: its head for %s is not used\n", session_model_name(&run->session),
                run->session.config.other_head);
    if (run->session.folder || command == &benchmark || *run->options.profiling.window) return;
    fprintf(stderr,
            "RANDOM WEIGHTS: %s is an untrained preset, so the output is meaningless; a trained "
            "model is a folder: --model=FOLDER\n",
            run->options.model);
}

static Status run_all(Run *run, int argc, char **argv) {
    bool done = false;
    const Command *command;
    const InferOptions *o = &run->options;
    TRY(task_read_infer(argc, argv, &benchmark, &run->options, &run->set, &done));
    if (done) return OK;
    if (strcmp(o->op, "help") == 0) return operation_alone_list(stdout);
    profiling_prepare(&run->options.profiling);
    TRY(session_open(&run->session, o->model, NULL, o->tokenizer, &o->compute));
    TRY(profiling_options_device(&o->profiling, run->session.device));
    run->session.shows_progress = !o->quiet;
    if (*o->op) return operation_alone(&run->session, o, &run->set);
    TRY(infer_options_pack(o, &run->set, &run->session));
    TRY(task_find_command(&run->session.config, o, &run->set, &benchmark, &command));
    TRY(check_lengths(run));
    TRY(infer_options_check_outputs(&run->set));
    warn_of_weights(run, command);
    if (*o->save) return save(run);
    if (o->decode) return infer_decode(&run->session, o, stdout);
    return command == &benchmark ? profile(run) : command->run(&run->session, o, &run->set);
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
    int code = status_exit(status, program_invocation_short_name);
    signals_repeat();
    return code;
}
