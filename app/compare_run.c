#include "app/compare_run.h"

#include "base/memory.h"

/* All that an update changes. */
enum { STATE_TENSORS = 5 };

typedef struct {
    Tensor tensors[STATE_TENSORS];
    void *copies[STATE_TENSORS]; // device memory; NULL where there is no such tensor
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

/* One step, at the batches of `round`. Going back to a batch takes the reader longer than going on to the
 * next one does in training, so what is fetched ahead is not part of the step's time. */
typedef struct {
    const PathsOptions *options;
    int64_t round, accum;
    MicroBatch ahead; // the step's only micro-batch
    double waited_ms; // for all others
} RoundSource;

static Status fetch_round(void *source, int64_t index, MicroBatch *batch) {
    RoundSource *r = source;
    double start = device_clock();
    if (r->accum == 1)
        *batch = r->ahead;
    else
        TRY(r->options->fetch(r->options->source, r->round * r->accum + index, batch));
    r->waited_ms += 1e3 * (device_clock() - start);
    return OK;
}

static Status fetch_ahead(RoundSource *r) {
    return r->accum == 1 ? r->options->fetch(r->options->source, r->round, &r->ahead) : OK;
}

static Status timed_step(Trainer *t, const PathsOptions *o, const Snapshot *s, int form, int64_t round,
                         double *ms) {
    RoundSource source = {.options = o, .round = round, .accum = t->accum};
    StepResult result;
    t->ctx.fuses = o->fuses[form];
    t->ctx.step = round;
    TRY(snapshot_restore(t, s));
    TRY(fetch_ahead(&source));
    double start = device_clock();
    TRY(trainer_step(t, fetch_round, &source, o->learning_rate, &result));
    *ms = 1e3 * (device_clock() - start);
    return OK;
}

/* Rounds with timing per operation off (recorders NULL) or on; the paths alternate within each round. */
static Status rounds(Trainer *t, const PathsOptions *o, const Snapshot *s,
                     Recorder *const recorders[FORM_COUNT], double *times[FORM_COUNT]) {
    for (int64_t round = -o->warmup; round < o->rounds; round++) {
        for (int form = 0; form < FORM_COUNT; form++) {
            double ms;
            t->ctx.recorder = round >= 0 && recorders ? recorders[form] : NULL;
            TRY(timed_step(t, o, s, form, round < 0 ? 0 : round, &ms));
            t->ctx.recorder = NULL;
            if (round >= 0 && times) times[form][round] = ms;
        }
        if (o->progress && round >= 0) {
            int64_t done = round + 1 + (times ? 0 : o->rounds);
            o->progress(o->progress_context, done, 2 * o->rounds);
        }
    }
    return OK;
}

static Status time_steps(Trainer *t, const PathsOptions *o, const Snapshot *s, Comparison *c) {
    double *times[FORM_COUNT];
    double *all = memory_array((size_t)o->rounds * FORM_COUNT, sizeof *all);
    for (int form = 0; form < FORM_COUNT; form++) times[form] = all + form * o->rounds;
    Status status = rounds(t, o, s, NULL, times);
    for (int form = 0; form < FORM_COUNT && !status; form++) {
        PathProfile *p = &c->paths[form];
        p->step_ms = median(times[form], o->rounds); // sorts
        p->step_low = times[form][0];
        p->step_high = times[form][o->rounds - 1];
    }
    memory_free(all);
    return status;
}

static Status summarize(Recorder *recorder, int64_t steps, Summary *summary) {
    const Record *records;
    int64_t count, dropped;
    TRY(recorder_read(recorder, &records, &count, &dropped));
    if (dropped)
        return fail(ERROR_INTERNAL, "%lld records were dropped; use fewer rounds", (long long)dropped);
    return summary_make(records, count, 0, steps, false, summary);
}

static Status time_operations(Trainer *t, const PathsOptions *o, const Snapshot *s, Comparison *c) {
    Recorder *recorders[FORM_COUNT] = {0};
    Status status = OK;
    for (int form = 0; form < FORM_COUNT && !status; form++)
        status = recorder_open(t->ctx.device, &(RecorderOptions){.timed = true}, &recorders[form]);
    if (!status) status = rounds(t, o, s, recorders, NULL);
    for (int form = 0; form < FORM_COUNT && !status; form++)
        status = summarize(recorders[form], o->rounds, &c->paths[form].summary);
    for (int form = 0; form < FORM_COUNT; form++) recorder_close(recorders[form]);
    return status;
}

/* The outputs of every call on the first row of the first batch: a whole batch would not fit in host memory.
 */
static Status find_differences(Trainer *t, const PathsOptions *o, const Snapshot *s, Comparison *c) {
    Capture *capture;
    TRY(capture_open(&capture));
    int64_t batch = t->batch, accum = t->accum;
    t->batch = t->accum = 1;
    t->ctx.observe = capture_observe;
    t->ctx.observer = capture;
    Status status = OK;
    double ms;
    for (int form = 0; form < FORM_COUNT && !status; form++) {
        if (form) capture_second_run(capture);
        status = timed_step(t, o, s, form, 0, &ms);
    }
    t->ctx.observe = NULL;
    t->ctx.observer = NULL;
    t->batch = batch;
    t->accum = accum;
    if (!status) capture_take(capture, &c->differences, &c->difference_count);
    capture_close(capture);
    return status;
}

/* ---- traces ---- */

static Status traced_step(Trainer *t, const PathsOptions *o, Profiling *profiling, int64_t step) {
    RoundSource source = {.options = o, .round = step - 1, .accum = t->accum};
    StepResult result;
    t->ctx.step = step;
    TRY(fetch_ahead(&source));
    TRY(profiling_before(profiling, &t->ctx, step, step));
    double start = device_clock();
    TRY(trainer_step(t, fetch_round, &source, o->learning_rate, &result));
    return profiling_after(profiling, &t->ctx, 1e3 * (device_clock() - start), source.waited_ms, t->tokens);
}

/* One path after the other: only one at a time can hold the source of records. */
static Status trace_path(Trainer *t, const PathsOptions *o, const Snapshot *s, int form) {
    Profiling *profiling;
    bool graphs = t->ctx.graphs;
    t->ctx.fuses = o->fuses[form];
    TRY(snapshot_restore(t, s));
    TRY(profiling_open(o->profiling, &t->ctx, o->facts, "", NULL, &profiling));
    profiling_keep(profiling, &o->traces[form]);
    Status status = OK;
    for (int64_t step = 1; !status && !profiling_done(profiling); step++)
        status = traced_step(t, o, profiling, step);
    if (!status) status = profiling_finish(profiling, &t->ctx);
    profiling_close(profiling);
    t->ctx.graphs = graphs;
    return status;
}

Status paths_measure(Trainer *t, const PathsOptions *o, size_t bytes[FORM_COUNT]) {
    for (int form = 0; form < FORM_COUNT; form++) {
        t->ctx.fuses = o->fuses[form];
        TRY(trainer_measure(t, &bytes[form]));
    }
    return OK;
}

Status paths_run(Trainer *t, const PathsOptions *o, Comparison *c) {
    Snapshot snapshot;
    uint32_t fuses = t->ctx.fuses;
    TRY(snapshot_make(t, &snapshot));
    Status status = time_steps(t, o, &snapshot, c);
    if (!status) status = time_operations(t, o, &snapshot, c);
    if (!status) status = find_differences(t, o, &snapshot, c);
    for (int form = 0; form < FORM_COUNT && o->profiling && !status; form++)
        status = trace_path(t, o, &snapshot, form);
    if (!status) status = snapshot_restore(t, &snapshot);
    t->ctx.fuses = fuses;
    t->ctx.step = 0;
    snapshot_free(t, &snapshot);
    return status;
}
