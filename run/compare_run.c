#include "run/compare_run.h"

#include "run/turns.h"
#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* The tensors that an update changes. */
enum { STATE_TENSORS = 5 };

enum { WARMUP = 3 }; // rounds at least

/* Under load a GPU's clocks drop to their sustained rates within seconds. */
static const double GPU_WARM_AFTER = 3, GPU_WARM_BEFORE = 30, STEADY_WITHIN = 0.005;

typedef struct {
    Device *device;
    Tensor tensors[STATE_TENSORS];
    void *copies[STATE_TENSORS]; // device memory; NULL if there is no such tensor
} Snapshot;

static int count_paths(uint32_t fuses) {
    return fuses & FUSE_FP8 ? COMPARE_PATHS : COMPARE_FP8;
}

static uint32_t path_fuses(uint32_t fuses, int path) {
    if (path == COMPARE_NAIVE) return 0;
    return path == COMPARE_FP8 ? fuses : fuses & ~FUSE_FP8;
}

static void snapshot_free(Snapshot *s) {
    for (int i = 0; i < STATE_TENSORS; i++)
        if (s->copies[i]) s->device->release(s->device, s->copies[i]);
}

static Status snapshot_make(Trainer *t, Snapshot *s) {
    Device *device = t->ctx.device;
    Parameters *p = &t->model.parameters;
    *s = (Snapshot){.device = device, .tensors = {p->weight, p->master, p->m, p->v, t->model.state}};
    for (int i = 0; i < STATE_TENSORS; i++) {
        size_t bytes = tensor_bytes(s->tensors[i]);
        if (!bytes) continue;
        Status status = device->allocate(device, bytes, &s->copies[i]);
        if (!status) status = device->copy(device, s->copies[i], s->tensors[i].data, bytes);
        if (status) return fail_at(status, "--compare keeps a second copy of the state");
    }
    return OK;
}

static Status snapshot_restore(const Snapshot *s) {
    Device *device = s->device;
    for (int i = 0; i < STATE_TENSORS; i++)
        if (s->copies[i])
            TRY(device->copy(device, s->tensors[i].data, s->copies[i], tensor_bytes(s->tensors[i])));
    return device->synchronize(device);
}

/* One step on the batches of a round. Seeking back to a batch takes the reader longer than reading the next
 * one, as training does, so the prefetched part is excluded from the step's time. */
typedef struct {
    Trainer *trainer;
    const CompareOptions *options;
    const Snapshot *snapshot;
    int64_t number;
    Batch ahead;      // the step's only micro-batch
    double waited_ms; // time spent waiting for the other micro-batches
} Round;

static Status fetch_round(void *source, int64_t index, Batch *batch) {
    Round *r = source;
    int64_t accum = r->trainer->accum;
    double start = device_clock();
    if (accum == 1)
        *batch = r->ahead;
    else
        TRY(r->options->fetch(r->options->source, r->number * accum + index, batch));
    r->waited_ms += 1e3 * (device_clock() - start);
    return OK;
}

static Status fetch_ahead(Round *r) {
    return r->trainer->accum == 1 ? r->options->fetch(r->options->source, r->number, &r->ahead) : OK;
}

static Status round_step(Ctx *ctx, void *program, StepCost *cost) {
    Round *r = program;
    StepResult result;
    (void)ctx;
    r->waited_ms = 0;
    TRY(trainer_step(r->trainer, fetch_round, r, r->options->learning_rate, &result));
    cost->reader_ms = r->waited_ms;
    cost->tokens = r->trainer->tokens;
    return OK;
}

/* The same, after restoring the snapshot. */
static Status fresh_step(Ctx *ctx, void *program, StepCost *cost) {
    Round *r = program;
    TRY(snapshot_restore(r->snapshot));
    TRY(fetch_ahead(r));
    return round_step(ctx, r, cost);
}

/* Runs a path from the snapshot on the batches of a round (turns.h). */
static Status timed_step(void *program, int path, int64_t number, StepCost *cost) {
    Round round = *(const Round *)program;
    Trainer *t = round.trainer;
    round.number = number;
    t->ctx.fuses = path_fuses(round.options->session->fuses, path);
    TRY(snapshot_restore(round.snapshot));
    TRY(fetch_ahead(&round));
    return profiling_step(NULL, &t->ctx, number, round_step, &round, cost);
}

/* With several ranks the number of warm-up rounds is fixed, because ranks would not agree on a moment. */
static bool is_warm(const Trainer *t, const Series *ms, double seconds) {
    if (ms->count < WARMUP) return false;
    if (t->ctx.device->backend == BACKEND_CPU || t->comm || seconds > GPU_WARM_BEFORE) return true;
    return seconds > GPU_WARM_AFTER && series_steady(ms, STEADY_WITHIN);
}

static Status warm_up(const Turns *turns, const Trainer *t) {
    const double start = device_clock();
    Series ms = {0};
    Status status = OK;
    while (!status && !is_warm(t, &ms, device_clock() - start)) {
        StepCost costs[COMPARE_PATHS] = {0};
        double sum = 0;
        status = turns_round(turns, 0, costs);
        for (int path = 0; path < COMPARE_PATHS; path++) sum += costs[path].ms;
        if (!status) series_add(&ms, sum);
    }
    memory_free(ms.values);
    return status;
}

/* Compares the first row of the first batch: the outputs of a whole batch would not fit in host memory. */
static Status find_differences(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c) {
    int64_t batch = t->batch, accum = t->accum;
    t->batch = t->accum = 1;
    t->ctx.step = 0;
    Round round = {.trainer = t, .options = o, .snapshot = s};
    Status status = OK;
    for (int path = COMPARE_FUSED; path < c->path_count && !status; path++) {
        /* Communication calls differ between the forms, so their outputs are not compared. */
        const uint32_t fuses = path_fuses(o->session->fuses, path) & ~(1u << OP_COMM);
        status = profiling_differences(&t->ctx, fuses, fresh_step, &round, &c->paths[path].differences,
                                       &c->paths[path].difference_count);
    }
    t->batch = batch;
    t->accum = accum;
    return status;
}

/* ---- traces ---- */

static Status traced_step(Trainer *t, const CompareOptions *o, Profiling *profiling, int64_t step) {
    Round round = {.trainer = t, .options = o, .number = step - 1};
    TRY(fetch_ahead(&round));
    return profiling_step(profiling, &t->ctx, step, round_step, &round, NULL);
}

static double *copy_of(const double *values, int64_t count) {
    double *copy = memory_array((size_t)count + 1, sizeof *copy);
    if (values) memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

/* The trace's step times are those of the comparison, so that all reports show the same time. */
static void set_costs(Trace *trace, const StepCost *costs) {
    const int64_t traced = trace->run.traced_count;
    OWNED double *traced_ms = copy_of(trace->run.traced_ms, traced);
    OWNED double *traced_tokens = copy_of(trace->run.traced_tokens, traced);
    double ms[COMPARE_ROUNDS], reader_ms[COMPARE_ROUNDS], tokens[COMPARE_ROUNDS];
    for (int round = 0; round < COMPARE_ROUNDS; round++) {
        ms[round] = costs[round].ms;
        reader_ms[round] = costs[round].reader_ms;
        tokens[round] = (double)costs[round].tokens;
    }
    trace_set_times(trace, ms, reader_ms, COMPARE_ROUNDS, traced_ms, traced);
    trace_set_tokens(trace, tokens, traced_tokens);
}

/* Traces one form after the other, because only one can hold the source of records. The times with tracing
 * off come from the alternating rounds, unless these were launched as graphs, which tracing does not use. */
static Status trace_form(Trainer *t, const CompareOptions *o, const Snapshot *s, int form,
                         const StepCost *costs, TraceList *traces) {
    const TraceRun facts = profiling_facts(o->session, "train", o->peaks, t->batch, t->seq, t->accum);
    ProfilingOptions options = *o->profiling;
    Profiling *profiling;
    const bool graphs = t->ctx.graphs, replays = graphs && t->ctx.device->graph_launch;
    const bool timed = !replays && !options.skip_benchmark && !options.timer_only;
    t->ctx.fuses = form == FORM_FUSED ? o->session->fuses : 0;
    options.skip_benchmark |= timed;
    TRY(snapshot_restore(s));
    TRY(profiling_open(&options, &t->ctx, &facts, "", NULL, &profiling));
    profiling_share(profiling, t->comm);
    profiling_keep(profiling, traces);
    Status status = OK;
    for (int64_t step = 1; !status && !profiling_done(profiling); step++)
        status = traced_step(t, o, profiling, step);
    if (!status) status = profiling_finish(profiling, &t->ctx);
    for (int64_t i = 0; i < traces->count && timed; i++) set_costs(traces->traces[i], costs);
    profiling_close(profiling);
    t->ctx.graphs = graphs;
    return status;
}

Status compare_run_measure(Trainer *t, uint32_t fuses, size_t bytes[COMPARE_PATHS]) {
    for (int path = 0; path < count_paths(fuses); path++) {
        t->ctx.fuses = path_fuses(fuses, path);
        TRY(trainer_measure(t, &bytes[path]));
    }
    return OK;
}

/* Without and then with timing per operation. */
static Status time_paths(const Turns *turns, Comparison *c, StepCost *costs) {
    const CoreTimes cores = cores_read();
    TRY(turns_time(turns, costs, c->paths, &c->split));
    TRY(turns_operations(turns, &c->peaks, false, "rounds", c->paths));
    c->cores_waited = cores_waited(cores);
    return OK;
}

static Status run(Trainer *t, const CompareOptions *o, Comparison *c, TraceList traces[FORM_COUNT]) {
    CLOSED_BY(snapshot_free) Snapshot snapshot = {0};
    StepCost costs[COMPARE_PATHS][COMPARE_ROUNDS];
    Round round = {.trainer = t, .options = o, .snapshot = &snapshot};
    const Turns turns = {&t->ctx,    COMPARE_NAIVE, c->path_count, COMPARE_ROUNDS,
                         timed_step, &round,        o->progress};
    uint32_t fuses = t->ctx.fuses;
    TRY(snapshot_make(t, &snapshot));
    TRY(warm_up(&turns, t));
    TRY(time_paths(&turns, c, costs[0]));
    progress_hide(o->progress);
    TRY(find_differences(t, o, &snapshot, c));
    for (int form = 0; form < FORM_COUNT && *o->profiling->window; form++)
        TRY(trace_form(t, o, &snapshot, form, costs[form == FORM_NAIVE ? 0 : c->path_count - 1],
                       &traces[form]));
    t->ctx.fuses = fuses;
    t->ctx.step = 0;
    return snapshot_restore(&snapshot);
}

/* ---- the report ---- */

static Comparison describe(const Trainer *t, const CompareOptions *o) {
    Comparison c = {.what = "step",
                    .batch = t->batch,
                    .seq = t->seq,
                    .rounds = COMPARE_ROUNDS,
                    .path_count = count_paths(o->session->fuses),
                    .peaks = *o->peaks,
                    .device = o->session->device->name,
                    .library = o->session->device->library,
                    .dtype = session_dtype_name(o->session),
                    .model = session_model_name(o->session)};
    for (int path = 0; path < c.path_count; path++) c.paths[path].peak_bytes = o->bytes[path];
    return c;
}

static Status report(const Comparison *c, const TraceList traces[FORM_COUNT], const CompareOptions *o) {
    const PathTimes *last = &c->paths[c->path_count - 1];
    if (o->file) compare_print(c, o->file);
    TRY(profiling_report_lists(o->profiling, traces, FORM_COUNT, last->differences, last->difference_count,
                               o->suffix, o->file));
    if (!*o->folder) return OK;
    OWNED char *path = path_join(o->folder, "compare.json");
    return compare_write(c, path);
}

Status compare_report(Trainer *t, const CompareOptions *o) {
    Comparison c = describe(t, o);
    TraceList traces[FORM_COUNT] = {0};
    t->settles = true; // so that each round also pays for the exchanges that a step would defer to the next
    Status status = run(t, o, &c, traces);
    if (!status) status = report(&c, traces, o);
    for (int form = 0; form < FORM_COUNT; form++) trace_list_free(&traces[form]);
    compare_free(&c);
    return status;
}
