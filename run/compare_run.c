#include "run/compare_run.h"

#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"
#include "kernels/device/cpu.h"

#include <stdio.h>
#include <string.h>

/* The tensors that an update changes. */
enum { STATE_TENSORS = 5 };

enum { WARMUP = 3 };           // rounds at least
enum { ONE_THREAD_EVERY = 2 }; // rounds, because one thread takes long

/* Under load a GPU's clocks drop to their sustained rates within seconds. */
static const double GPU_WARM_AFTER = 3, GPU_WARM_BEFORE = 30, STEADY_WITHIN = 0.005;

/* Times of the rounds without timing per operation, in order. */
typedef struct {
    double ms[COMPARE_ROUNDS], reader_ms[COMPARE_ROUNDS], tokens[COMPARE_ROUNDS];
} Turns;

typedef struct {
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

static void snapshot_free(Trainer *t, Snapshot *s) {
    for (int i = 0; i < STATE_TENSORS; i++)
        if (s->copies[i]) t->ctx.device->release(t->ctx.device, s->copies[i]);
}

static Status snapshot_make(Trainer *t, Snapshot *s) {
    Device *device = t->ctx.device;
    Parameters *p = &t->model.parameters;
    *s = (Snapshot){.tensors = {p->weight, p->master, p->m, p->v, t->model.state}};
    for (int i = 0; i < STATE_TENSORS; i++) {
        size_t bytes = tensor_bytes(s->tensors[i]);
        if (!bytes) continue;
        Status status = device->allocate(device, bytes, &s->copies[i]);
        if (!status) status = device->copy(device, s->copies[i], s->tensors[i].data, bytes);
        if (status) {
            snapshot_free(t, s);
            return fail_at(status, "--compare keeps a second copy of the state");
        }
    }
    return OK;
}

static Status snapshot_restore(Trainer *t, const Snapshot *s) {
    Device *device = t->ctx.device;
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
    TRY(snapshot_restore(r->trainer, r->snapshot));
    TRY(fetch_ahead(r));
    return round_step(ctx, r, cost);
}

static Status timed_step(Trainer *t, const CompareOptions *o, const Snapshot *s, int path, int64_t number,
                         StepCost *cost) {
    Round round = {.trainer = t, .options = o, .snapshot = s, .number = number};
    t->ctx.fuses = path_fuses(o->session->fuses, path);
    TRY(snapshot_restore(t, s));
    TRY(fetch_ahead(&round));
    return profiling_step(NULL, &t->ctx, number, round_step, &round, cost);
}

/* The fused path with the naive path's products. */
static Status blas_step(Trainer *t, const CompareOptions *o, const Snapshot *s, int64_t round,
                        StepCost *cost) {
    t->ctx.blas_only = true;
    Status status = timed_step(t, o, s, COMPARE_FUSED, round, cost);
    t->ctx.blas_only = false;
    return status;
}

/* How much faster the fused forms are on one thread, with the naive path's products. */
static Status one_thread_round(Trainer *t, const CompareOptions *o, const Snapshot *s, int64_t round,
                               double *faster) {
    const int threads = t->ctx.device->threads;
    StepCost costs[FORM_COUNT];
    Status status = OK;
    cpu_use_threads(t->ctx.device, 1);
    for (int turn = 0; turn < FORM_COUNT && !status; turn++) {
        const int form = compare_turn(round, turn, FORM_COUNT);
        status = form == FORM_NAIVE ? timed_step(t, o, s, COMPARE_NAIVE, round, &costs[form])
                                    : blas_step(t, o, s, round, &costs[form]);
    }
    cpu_use_threads(t->ctx.device, threads);
    if (!status) *faster = costs[FORM_NAIVE].ms / costs[FORM_FUSED].ms;
    return status;
}

int compare_turn(int64_t round, int turn, int count) {
    return (int)(((round % 2 ? count - 1 - turn : turn) + round / 2) % count);
}

/* Runs each path, and unless `blas` is NULL, blas_step. */
static Status one_round(Trainer *t, const CompareOptions *o, const Snapshot *s, int64_t round,
                        Recorder *const recorders[COMPARE_PATHS], StepCost costs[COMPARE_PATHS],
                        StepCost *blas) {
    const int paths = count_paths(o->session->fuses), count = paths + (blas ? 1 : 0);
    for (int turn = 0; turn < count; turn++) {
        const int path = compare_turn(round, turn, count);
        t->ctx.recorder = recorders ? recorders[path] : NULL;
        Status status =
            path < paths ? timed_step(t, o, s, path, round, &costs[path]) : blas_step(t, o, s, round, blas);
        t->ctx.recorder = NULL;
        if (status) return status;
    }
    return OK;
}

/* With several ranks the number of warm-up rounds is fixed, because ranks would not agree on a moment. */
static bool is_warm(const Trainer *t, const Series *ms, double seconds) {
    if (ms->count < WARMUP) return false;
    if (t->ctx.device->backend == BACKEND_CPU || t->comm || seconds > GPU_WARM_BEFORE) return true;
    return seconds > GPU_WARM_AFTER && series_steady(ms, STEADY_WITHIN);
}

static Status warm_up(Trainer *t, const CompareOptions *o, const Snapshot *s) {
    const double start = device_clock();
    Series ms = {0};
    Status status = OK;
    while (!status && !is_warm(t, &ms, device_clock() - start)) {
        StepCost costs[COMPARE_PATHS] = {0};
        double sum = 0;
        status = one_round(t, o, s, 0, NULL, costs, NULL);
        for (int path = 0; path < COMPARE_PATHS; path++) sum += costs[path].ms;
        if (!status) series_add(&ms, sum);
    }
    memory_free(ms.values);
    return status;
}

static Status time_steps(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c,
                         Turns turns[COMPARE_PATHS]) {
    const bool libraries = strstr(c->library, "oneDNN"); // oneDNN, which the naive and the fused products may
                                                         // not share
    const bool threaded = t->ctx.device->backend == BACKEND_CPU && t->ctx.device->threads > 1;
    double blas_ms[COMPARE_ROUNDS], with_all[COMPARE_ROUNDS], with_one[COMPARE_ROUNDS];
    int64_t pairs = 0;
    for (int64_t round = 0; round < COMPARE_ROUNDS; round++) {
        StepCost costs[COMPARE_PATHS], blas;
        TRY(one_round(t, o, s, round, NULL, costs, libraries ? &blas : NULL));
        if (libraries) blas_ms[round] = blas.ms;
        for (int path = 0; path < c->path_count; path++) {
            turns[path].ms[round] = costs[path].ms;
            turns[path].reader_ms[round] = costs[path].reader_ms;
            turns[path].tokens[round] = (double)costs[path].tokens;
        }
        if (threaded && round % ONE_THREAD_EVERY == 0) {
            with_all[pairs] = costs[COMPARE_NAIVE].ms / (libraries ? blas.ms : costs[COMPARE_FUSED].ms);
            TRY(one_thread_round(t, o, s, round, &with_one[pairs++]));
        }
        progress_step(o->progress, round + 1, 0);
    }
    if (threaded) {
        c->threads = pairs_ratio(with_all, with_one, pairs);
        c->one_thread = median_interval(with_one, pairs); // last: it sorts the values, which were paired
    }
    if (libraries) {
        c->forms = pairs_ratio(turns[COMPARE_NAIVE].ms, blas_ms, COMPARE_ROUNDS);
        c->products = pairs_ratio(blas_ms, turns[COMPARE_FUSED].ms, COMPARE_ROUNDS);
    }
    for (int path = 0; path < c->path_count; path++) {
        double sorted[COMPARE_ROUNDS];
        memcpy(sorted, turns[path].ms, sizeof sorted);
        c->paths[path].step = stats_make(sorted, COMPARE_ROUNDS);
        if (path) c->paths[path].pairs = pairs_ratio(turns[path - 1].ms, turns[path].ms, COMPARE_ROUNDS);
    }
    return OK;
}

static Status time_operations(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c) {
    Recorder *recorders[COMPARE_PATHS];
    for (int path = 0; path < c->path_count; path++)
        recorders[path] = recorder_open(t->ctx.device, &(RecorderOptions){.timed = true});
    Status status = OK;
    for (int64_t round = 0; round < COMPARE_ROUNDS && !status; round++) {
        StepCost costs[COMPARE_PATHS];
        status = one_round(t, o, s, round, recorders, costs, NULL);
        progress_step(o->progress, COMPARE_ROUNDS + round + 1, 0);
    }
    progress_hide(o->progress);
    for (int path = 0; path < c->path_count && !status; path++)
        status = timed_operations_read(recorders[path], &c->peaks, "rounds", &c->paths[path].operations);
    for (int path = 0; path < c->path_count; path++) recorder_close(recorders[path]);
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
static void set_turns(Trace *trace, const Turns *turns) {
    const int64_t traced = trace->run.traced_count;
    OWNED double *ms = copy_of(trace->run.traced_ms, traced);
    OWNED double *tokens = copy_of(trace->run.traced_tokens, traced);
    trace_set_times(trace, turns->ms, turns->reader_ms, COMPARE_ROUNDS, ms, traced);
    trace_set_tokens(trace, turns->tokens, tokens);
}

/* Traces one form after the other, because only one can hold the source of records. The times with tracing
 * off come from the alternating rounds, unless these were launched as graphs, which tracing does not use. */
static Status trace_form(Trainer *t, const CompareOptions *o, const Snapshot *s, int form, const Turns *turns,
                         TraceList *traces) {
    const TraceRun facts = profiling_facts(o->session, "train", o->peaks, t->batch, t->seq, t->accum);
    ProfilingOptions options = *o->profiling;
    Profiling *profiling;
    const bool graphs = t->ctx.graphs, replays = graphs && t->ctx.device->graph_launch;
    const bool timed = !replays && !options.skip_benchmark && !options.timer_only;
    t->ctx.fuses = form == FORM_FUSED ? o->session->fuses : 0;
    options.skip_benchmark |= timed;
    TRY(snapshot_restore(t, s));
    TRY(profiling_open(&options, &t->ctx, &facts, "", NULL, &profiling));
    profiling_share(profiling, t->comm);
    profiling_keep(profiling, traces);
    Status status = OK;
    for (int64_t step = 1; !status && !profiling_done(profiling); step++)
        status = traced_step(t, o, profiling, step);
    if (!status) status = profiling_finish(profiling, &t->ctx);
    for (int64_t i = 0; i < traces->count && timed; i++) set_turns(traces->traces[i], turns);
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

static Status run(Trainer *t, const CompareOptions *o, Comparison *c, TraceList traces[FORM_COUNT]) {
    Snapshot snapshot;
    Turns turns[COMPARE_PATHS];
    uint32_t fuses = t->ctx.fuses;
    TRY(snapshot_make(t, &snapshot));
    Status status = warm_up(t, o, &snapshot);
    const CoreTimes cores = cores_read();
    if (!status) status = time_steps(t, o, &snapshot, c, turns);
    if (!status) status = time_operations(t, o, &snapshot, c);
    c->cores_waited = cores_waited(cores);
    if (!status) status = find_differences(t, o, &snapshot, c);
    for (int form = 0; form < FORM_COUNT && *o->profiling->window && !status; form++)
        status = trace_form(t, o, &snapshot, form, &turns[form == FORM_NAIVE ? 0 : c->path_count - 1],
                            &traces[form]);
    if (!status) status = snapshot_restore(t, &snapshot);
    t->ctx.fuses = fuses;
    t->ctx.step = 0;
    snapshot_free(t, &snapshot);
    return status;
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
