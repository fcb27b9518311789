#include "run/compare_run.h"

#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"

#include <stdio.h>

/* The tensors that an update changes. */
enum { STATE_TENSORS = 5 };

enum { WARMUP = 3 }; // rounds

typedef struct {
    Tensor tensors[STATE_TENSORS];
    void *copies[STATE_TENSORS]; // device memory; NULL if there is no such tensor
} Snapshot;

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
    double waited_ms; // for the other micro-batches
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

static Status timed_step(Trainer *t, const CompareOptions *o, const Snapshot *s, int form, int64_t number,
                         double *ms) {
    Round round = {.trainer = t, .options = o, .snapshot = s, .number = number};
    StepCost cost;
    t->ctx.fuses = form == FORM_FUSED ? o->session->fuses : 0;
    TRY(snapshot_restore(t, s));
    TRY(fetch_ahead(&round));
    TRY(profiling_step(NULL, &t->ctx, number, round_step, &round, &cost));
    *ms = cost.ms;
    return OK;
}

/* Runs rounds without timing per operation (recorders NULL) or with it. The forms alternate within each
 * round, and every second round begins with the other form. */
static Status rounds(Trainer *t, const CompareOptions *o, const Snapshot *s,
                     Recorder *const recorders[FORM_COUNT], double *times[FORM_COUNT]) {
    for (int64_t round = -WARMUP; round < COMPARE_ROUNDS; round++) {
        for (int turn = 0; turn < FORM_COUNT; turn++) {
            const int form = round % 2 ? FORM_COUNT - 1 - turn : turn;
            double ms;
            t->ctx.recorder = round >= 0 && recorders ? recorders[form] : NULL;
            TRY(timed_step(t, o, s, form, round < 0 ? 0 : round, &ms));
            t->ctx.recorder = NULL;
            if (round >= 0 && times) times[form][round] = ms;
        }
        if (round >= 0) progress_step(o->progress, round + 1 + (times ? 0 : COMPARE_ROUNDS), 0);
    }
    progress_hide(o->progress);
    return OK;
}

static Status time_steps(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c) {
    double *times[FORM_COUNT];
    double *all = memory_array((size_t)COMPARE_ROUNDS * FORM_COUNT, sizeof *all);
    for (int form = 0; form < FORM_COUNT; form++) times[form] = all + form * COMPARE_ROUNDS;
    Status status = rounds(t, o, s, NULL, times);
    if (!status) c->pairs = pairs_ratio(times[FORM_NAIVE], times[FORM_FUSED], COMPARE_ROUNDS);
    for (int form = 0; form < FORM_COUNT && !status; form++)
        c->paths[form].step = stats_make(times[form], COMPARE_ROUNDS);
    memory_free(all);
    return status;
}

static Status time_operations(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c) {
    Recorder *recorders[FORM_COUNT];
    for (int form = 0; form < FORM_COUNT; form++)
        recorders[form] = recorder_open(t->ctx.device, &(RecorderOptions){.timed = true});
    Status status = rounds(t, o, s, recorders, NULL);
    for (int form = 0; form < FORM_COUNT && !status; form++)
        status = timed_operations_read(recorders[form], &c->peaks, "rounds", &c->paths[form].operations);
    for (int form = 0; form < FORM_COUNT; form++) recorder_close(recorders[form]);
    return status;
}

/* Compares the first row of the first batch: the outputs of a whole batch would not fit in host memory. */
static Status find_differences(Trainer *t, const CompareOptions *o, const Snapshot *s, Comparison *c) {
    int64_t batch = t->batch, accum = t->accum;
    t->batch = t->accum = 1;
    t->ctx.step = 0;
    Round round = {.trainer = t, .options = o, .snapshot = s};
    /* Communication calls differ between the forms, so their outputs are not compared. */
    uint32_t fuses = o->session->fuses & ~(1u << OP_COMM);
    Status status =
        profiling_differences(&t->ctx, fuses, fresh_step, &round, &c->differences, &c->difference_count);
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

/* Traces one form after the other, because only one can hold the source of records. */
static Status trace_form(Trainer *t, const CompareOptions *o, const Snapshot *s, int form,
                         TraceList *traces) {
    const TraceRun facts = profiling_facts(o->session, "train", o->peaks, t->batch, t->seq, t->accum);
    Profiling *profiling;
    bool graphs = t->ctx.graphs;
    t->ctx.fuses = form == FORM_FUSED ? o->session->fuses : 0;
    TRY(snapshot_restore(t, s));
    TRY(profiling_open(o->profiling, &t->ctx, &facts, "", NULL, &profiling));
    profiling_share(profiling, t->comm);
    profiling_keep(profiling, traces);
    Status status = OK;
    for (int64_t step = 1; !status && !profiling_done(profiling); step++)
        status = traced_step(t, o, profiling, step);
    if (!status) status = profiling_finish(profiling, &t->ctx);
    profiling_close(profiling);
    t->ctx.graphs = graphs;
    return status;
}

Status compare_run_measure(Trainer *t, uint32_t fuses, size_t bytes[FORM_COUNT]) {
    for (int form = 0; form < FORM_COUNT; form++) {
        t->ctx.fuses = form == FORM_FUSED ? fuses : 0;
        TRY(trainer_measure(t, &bytes[form]));
    }
    return OK;
}

static Status run(Trainer *t, const CompareOptions *o, Comparison *c, TraceList traces[FORM_COUNT]) {
    Snapshot snapshot;
    uint32_t fuses = t->ctx.fuses;
    TRY(snapshot_make(t, &snapshot));
    const CoreTimes cores = cores_read();
    Status status = time_steps(t, o, &snapshot, c);
    if (!status) status = time_operations(t, o, &snapshot, c);
    c->cores_waited = cores_waited(cores);
    if (!status) status = find_differences(t, o, &snapshot, c);
    for (int form = 0; form < FORM_COUNT && *o->profiling->window && !status; form++)
        status = trace_form(t, o, &snapshot, form, &traces[form]);
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
                    .peaks = *o->peaks,
                    .device = o->session->device->name,
                    .library = o->session->device->library,
                    .dtype = session_dtype_name(o->session),
                    .model = session_model_name(o->session)};
    for (int form = 0; form < FORM_COUNT; form++) c.paths[form].peak_bytes = o->bytes[form];
    return c;
}

static Status report(const Comparison *c, const TraceList traces[FORM_COUNT], const CompareOptions *o) {
    char *path = NULL;
    if (o->file) compare_print(c, o->file);
    TRY(profiling_report_lists(o->profiling, traces, FORM_COUNT, c->differences, c->difference_count,
                               o->suffix, o->file));
    if (!*o->folder) return OK;
    path = path_join(o->folder, "compare.json");
    Status status = compare_write(c, path);
    memory_free(path);
    return status;
}

Status compare_report(Trainer *t, const CompareOptions *o) {
    Comparison c = describe(t, o);
    TraceList traces[FORM_COUNT] = {0};
    t->settles = true; // so that each round pays for exchanges that it would defer
    Status status = run(t, o, &c, traces);
    if (!status) status = report(&c, traces, o);
    for (int form = 0; form < FORM_COUNT; form++) trace_list_free(&traces[form]);
    compare_free(&c);
    return status;
}
