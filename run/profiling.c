#include "run/profiling.h"

#include "base/cores.h"
#include "base/memory.h"
#include "profile/collect.h"
#include "report/spans.h"
#include "base/stats.h"
#include "profile/output_difference.h"
#include "profile/trace_ranks.h"
#include "profile/window.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Values per step, as many as were recorded. */
typedef struct {
    Series ms, reader_ms, tokens;
} StepTimes;

/* The machine's processor times up to a moment, in seconds. */
typedef struct {
    double wall, process, busy, all;
} ProcessorTimes;

/* The number of steps after which a report has scrolled off the screen. */
enum { STEPS_OUT_OF_SIGHT = 50 };

struct Profiling {
    const ProfilingOptions *options;
    TraceRun facts;
    const char *suffix;
    FILE *file;
    Window window;
    Collector *collector;
    bool graphs;     // the Ctx's setting
    int64_t steps;   // number of steps so far
    int64_t number;  // number of the current step, as the window counts
    int64_t offset;  // the run's step numbers minus the window's
    StepUse use;     // use of the current step
    int64_t segment; // the current segment; -1: none yet
    bool recording;  // the collector is between begin and end
    Trace *trace;    // recorded, and waiting for its step times
    TraceList *kept; // traces go here instead of being reported; may be NULL
    Trace *reported; // the last reported trace, or NULL; its files' suffix, and the number of validations it
                     // shows
    char reported_suffix[96];
    int64_t reported_step; // value of `steps` at that report
    TraceValidation *validations;
    int64_t validation_count, validation_room;
    Comm *comm;     // communicator of the ranks whose traces are gathered, or NULL
    Loader *loader; // the prefetching loader, or NULL
    StepTimes traced, timed;
    ProcessorTimes opened, start; // start: when the timed pass began
    CoreTimes cores;              // core times at the last report
    char window_text[128];
};

/* ---- the processors ---- */

static ProcessorTimes processor_times(void) {
    ProcessorTimes now = {.wall = device_clock()};
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        now.process = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                      1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    FILE *file = fopen("/proc/stat", "r");
    double user, nice, system, idle, wait;
    if (file && fscanf(file, "cpu %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait) == 5) {
        now.busy = user + nice + system;
        now.all = now.busy + idle + wait;
    }
    if (file) fclose(file);
    return now;
}

/* ---- opening ---- */

TraceRun profiling_facts(const Session *s, const char *program, const Peaks *measured, int64_t batch,
                         int64_t seq, int64_t accum) {
    const Config *c = &s->config;
    return (TraceRun){.source_note = "",
                      .host = "",
                      .measured = *measured,
                      .sheet = datasheet_peaks(s->device->name, s->dtype, s->tf32),
                      .model = session_model_name(s),
                      .dtype = session_dtype_name(s),
                      .bf16_fast = s->bf16_fast,
                      .program = program,
                      .step = "",
                      .unit = c->architecture->patches ? "images" : "tokens",
                      .batch = batch,
                      .seq = seq,
                      .accum = accum,
                      .layers = c->layers,
                      .heads = c->heads,
                      .width = c->width,
                      .parameters = config_parameters(c),
                      .ranks = 1,
                      .window = "",
                      .process_cpu = -1,
                      .system_cpu = -1,
                      .gpu_busy = -1};
}

static CollectorOptions collector_options(const ProfilingOptions *o, const Device *device) {
    return (CollectorOptions){.timers = o->timer_only,
                              .graphs = o->graphs,
                              .isolate = o->isolate,
                              .latency = o->latency,
                              .host_only = o->targets == TARGETS_CPU && device->backend == BACKEND_CUDA};
}

void profiling_prepare(const ProfilingOptions *options) {
    collector_prepare(options->latency);
}

Status profiling_open(const ProfilingOptions *options, Ctx *ctx, const TraceRun *facts, const char *suffix,
                      FILE *file, Profiling **profiling) {
    CLOSED_BY(profiling_release) Profiling *p = memory_allocate(sizeof *p);
    *p = (Profiling){.options = options,
                     .facts = *facts,
                     .suffix = suffix,
                     .file = file,
                     .segment = -1,
                     .opened = processor_times(),
                     .cores = cores_read(),
                     .graphs = ctx->graphs};
    const CollectorOptions collector = collector_options(options, ctx->device);
    if (options->set) p->facts.settings = profiling_options_settings(options->set, &p->facts.settings_count);
    TRY(profiling_options_window(options, &p->window));
    TRY(profiling_options_folder(options));
    p->collector = collector_open(ctx->device, &collector);
    ctx->graphs = ctx->graphs && (options->timer_only || collector_graphs(p->collector));
    *profiling = p;
    p = NULL; // the caller's now
    return OK;
}

static void free_times(StepTimes *times) {
    memory_free(times->ms.values);
    memory_free(times->reader_ms.values);
    memory_free(times->tokens.values);
    *times = (StepTimes){0};
}

void profiling_close(Profiling *p) {
    if (!p) return;
    trace_close(p->trace);
    trace_close(p->reported);
    memory_free(p->validations);
    collector_close(p->collector);
    profiling_options_settings_free(p->facts.settings, p->facts.settings_count);
    free_times(&p->traced);
    free_times(&p->timed);
    memory_free(p);
}

void profiling_set_seq(Profiling *p, int64_t seq) {
    if (p) p->facts.seq = seq;
}

void profiling_share(Profiling *p, Comm *comm) {
    if (!comm) return;
    p->comm = comm;
    p->facts.rank = comm->rank;
    p->facts.ranks = comm->size;
    p->facts.engine = comm->name;
}

void profiling_validated(Profiling *p, TraceValidation validation) {
    if (!p) return;
    p->validations =
        memory_grow(p->validations, &p->validation_room, p->validation_count + 1, sizeof *p->validations);
    p->validations[p->validation_count++] = validation;
}

void profiling_read_ahead(Profiling *p, Loader *loader) {
    if (p) p->loader = loader;
}

void profiling_keep(Profiling *p, TraceList *list) {
    p->kept = list;
}

/* ---- a segment's report ---- */

/* Sets the share of processor time since `from`. The system counts in hundredths of a second: after too few
 * of them, the system's share is that since profiling began, and if that is still too few, at least this
 * process's share. */
static void set_processors(TraceRun *run, ProcessorTimes from, ProcessorTimes opened) {
    ProcessorTimes now = processor_times();
    double processors = (double)sysconf(_SC_NPROCESSORS_ONLN), wall = now.wall - from.wall;
    if (wall > 0)
        run->process_cpu = fmin((now.process - from.process) / wall, processors); // the two times come from
                                                                                  // different clocks
    if (now.all <= from.all) from = opened;
    run->system_cpu =
        now.all > from.all ? (now.busy - from.busy) / (now.all - from.all) : run->process_cpu / processors;
}

/* The share of a recorded step in which the GPU is busy. */
static void measure_gpu_busy(Trace *t) {
    OWNED Interval *intervals = memory_array((size_t)(t->count ? t->count : 1), sizeof *intervals);
    int64_t count = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (trace_on_device(&t->events[i]) && t->events[i].step >= 0)
            intervals[count++] = (Interval){t->events[i].begin, t->events[i].end};
    double busy = (double)intervals_union(intervals, count), step_ms = 0;
    for (int64_t i = 0; i < t->run.traced_count; i++)
        step_ms += t->run.traced_ms[i] / (double)t->run.traced_count;
    if (step_ms > 0 && t->run.steps > 0) {
        double share = 1e-6 * busy / (double)t->run.steps / step_ms;
        t->run.gpu_busy = share < 1 ? share : 1;
    }
}

static void add_time(StepTimes *times, const StepCost *cost, double tokens) {
    series_add(&times->ms, cost->ms);
    series_add(&times->reader_ms, cost->reader_ms);
    series_add(&times->tokens, tokens);
}

static const WindowSegment *segment_of(const Profiling *p) {
    return &p->window.segments[p->segment];
}

static void record_read_ahead(const Profiling *p) {
    Batch ahead[LOADER_AHEAD];
    int count = p->loader && p->recording ? loader_ahead(p->loader, ahead) : 0;
    for (int i = 0; i < count; i++)
        record_reading(collector_recorder(p->collector),
                       &(RecordReading){ahead[i].worker, ahead[i].begun, ahead[i].done});
}

/* Each recorded step becomes a user range with this name. */
static void name_steps(Trace *t, const char *name) {
    for (int64_t i = 0; i < t->count && *name; i++) {
        if (t->events[i].kind != TRACE_STEP) continue;
        t->events[i].name = trace_name(t, name);
        t->events[i].own = true;
    }
}

/* Makes a trace of the recorded steps. */
static Status take_trace(Profiling *p, Ctx *ctx) {
    const WindowSegment *s = segment_of(p);
    snprintf(p->window_text, sizeof p->window_text,
             "steps %" PRId64 " to %" PRId64 ", counted from 1 (%s), segment %" PRId64 " of %" PRId64,
             s->begin + p->offset, s->begin + p->offset + p->traced.ms.count - 1, p->options->window,
             p->segment + 1, p->window.count);
    TraceRun run = p->facts;
    run.window = p->window_text;
    run.steps = p->traced.ms.count;
    ctx->recorder = NULL;
    record_read_ahead(p);
    if (p->recording) TRY(collector_end(p->collector));
    p->recording = false;
    TRY(collector_trace(p->collector, &run, ctx->arenas, &p->trace));
    name_steps(p->trace, p->options->range);
    return OK;
}

static Status write_report(Profiling *p, FILE *file) {
    Trace *t = p->reported;
    t->run.validations = p->validations;
    t->run.validation_count = p->validation_count;
    return profiling_report(p->options, &t, 1, NULL, 0, p->reported_suffix, file);
}

/* Reports the trace, or hands it over. */
static Status hand_out(Profiling *p) {
    Trace *t = p->trace;
    p->trace = NULL;
    if (p->comm) {
        Status gathered = trace_gather(t, p->comm);
        if (gathered || (p->comm->rank > 0 && !p->kept)) {
            trace_close(t);
            return gathered;
        }
    }
    if (p->kept) {
        trace_list_add(p->kept, t);
        return OK;
    }
    char *suffix = p->reported_suffix;
    snprintf(suffix, sizeof p->reported_suffix, "%s", p->suffix);
    if (p->window.count > 1)
        snprintf(suffix, sizeof p->reported_suffix, "%s_segment%" PRId64, p->suffix, p->segment + 1);
    trace_close(p->reported);
    p->reported = t;
    p->reported_step = p->steps;
    return write_report(p, p->file);
}

static Status report(Profiling *p) {
    if (!p->trace) return OK;
    Trace *t = p->trace;
    trace_set_times(t, p->timed.ms.values, p->timed.reader_ms.values, p->timed.ms.count, p->traced.ms.values,
                    p->options->timer_only ? 0 : p->traced.ms.count);
    trace_set_tokens(t, p->timed.tokens.values, p->traced.tokens.values);
    set_processors(&t->run, p->timed.ms.count ? p->start : p->opened, p->opened);
    if (t->run.source != SOURCE_CLOCK) measure_gpu_busy(t);
    t->run.cores_waited = cores_waited(p->cores);
    p->cores = cores_read();
    free_times(&p->traced);
    free_times(&p->timed);
    return hand_out(p);
}

/* ---- a step ---- */

/* The steps to time with tracing off; without tracing the whole window. */
static StepUse timed_use(const Profiling *p) {
    return p->options->timer_only ? STEP_RECORD : STEP_TIMED;
}

static Status begin_step(Profiling *p, Ctx *ctx, int64_t step) {
    int64_t segment, before = p->segment, here = ++p->steps, number = p->window.from_start ? here : step;
    p->number = number;
    p->offset = step - number;
    StepUse use = window_use(&p->window, number, &segment);
    bool record_begins = use == STEP_RECORD && (p->use != STEP_RECORD || segment != before);
    bool ready_begins = use == STEP_READY && p->use != STEP_READY;
    if (p->use == STEP_RECORD && (use != STEP_RECORD || record_begins)) TRY(take_trace(p, ctx));
    if (p->trace && (use != STEP_TIMED || p->options->timer_only)) TRY(report(p));
    if (use == timed_use(p) && p->use != use) p->start = processor_times();
    p->use = use;
    p->segment = segment;
    if (!p->options->timer_only && (ready_begins || record_begins)) {
        p->recording = true;
        for (int i = 0; i < ARENA_COUNT; i++) arena_restart_peak(&ctx->arenas[i]);
        TRY(collector_begin(p->collector, use == STEP_READY));
    }
    ctx->recorder = p->recording && use != STEP_TIMED ? collector_recorder(p->collector) : NULL;
    if (number > window_last(&p->window)) ctx->graphs = p->graphs;
    return OK;
}

static void end_step(Profiling *p, Ctx *ctx, const StepCost *cost) {
    double tokens = cost->tokens > 0 ? (double)cost->tokens : trace_step_tokens(&p->facts, 0);
    ctx->recorder = NULL;
    if (p->use == STEP_RECORD) add_time(&p->traced, cost, tokens);
    if (p->use == timed_use(p)) add_time(&p->timed, cost, tokens);
}

Status profiling_step(Profiling *p, Ctx *ctx, int64_t step, StepWork work, void *program, StepCost *cost) {
    StepCost took = {0};
    ctx->step = step;
    if (p) TRY(begin_step(p, ctx, step));
    double start = device_clock();
    TRY(work(ctx, program, &took));
    took.ms = 1e3 * (device_clock() - start);
    if (p) end_step(p, ctx, &took);
    if (cost) *cost = took;
    return OK;
}

bool profiling_done(const Profiling *p) {
    return !p ||
           p->number >= (p->options->timer_only ? window_last_recorded(&p->window) : window_last(&p->window));
}

Status profiling_finish(Profiling *p, Ctx *ctx) {
    if (!p) return OK;
    if (p->use == STEP_RECORD) TRY(take_trace(p, ctx));
    p->use = STEP_OUTSIDE;
    TRY(report(p));
    if (!p->reported) return OK;
    const bool gone = p->options->report == REPORT_BRIEF && p->steps - p->reported_step > STEPS_OUT_OF_SIGHT;
    const bool news = p->reported->run.validation_count < p->validation_count;
    return gone || news ? write_report(p, gone ? p->file : NULL) : OK;
}

Status profiling_differences(Ctx *ctx, uint32_t fuses, StepWork work, void *program, Difference **differences,
                             int *count) {
    CLOSED_BY(output_difference_close) OutputDifference observer = {0};
    StepCost cost;
    ctx->observe = output_difference_observe;
    ctx->observer = &observer;
    ctx->fuses = 0;
    Status status = work(ctx, program, &cost);
    observer.second = true;
    ctx->fuses = fuses;
    if (!status) status = work(ctx, program, &cost);
    ctx->observe = NULL;
    ctx->observer = NULL;
    TRY(status);
    *differences = observer.differences;
    *count = (int)observer.difference_count;
    observer.differences = NULL;
    return OK;
}
