#include "profile/collect.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/version.h"
#include "profile/clocks.h"
#include "profile/counters.h"
#include "profile/cupti.h"
#include "report/kernel_name.h"
#include "profile/trace_records.h"
#include "profile/watch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- occupancy ---- */

double kernel_occupancy(const MultiprocessorLimits *limits, const KernelShape *s) {
    enum { WARP = 32, REGISTER_UNIT = 256, FILES = 4, SHARED_UNIT = 128 };
    int64_t threads = (int64_t)s->block[0] * s->block[1] * s->block[2];
    if (threads < 1 || !limits->warps) return 0;
    int64_t warps = pieces(threads, WARP), blocks = least(limits->blocks, limits->warps / warps);
    if (s->registers > 0) {
        int64_t of_warp = pieces((int64_t)s->registers * WARP, REGISTER_UNIT) * REGISTER_UNIT;
        blocks = least(blocks, limits->registers / FILES / of_warp * FILES / warps);
    }
    int64_t shared = (int64_t)s->shared_static + s->shared_dynamic + (int64_t)limits->shared_reserved;
    shared = pieces(shared, SHARED_UNIT) * SHARED_UNIT;
    if (shared > 0) blocks = least(blocks, (int64_t)limits->shared / shared);
    return (double)(blocks * warps) / (double)limits->warps;
}

struct Collector {
    Device *device;
    TraceSource source;
    char note[256]; // why no better source is used, or how the source is used
    Cupti *cupti;   // NULL: another source
    bool isolate;   // the device rests before each primitive
    bool host_only; // nothing of the device is recorded
    bool graphs;    // kernels inside graph launches are recorded
    Recorder *recorder;
    bool outside; // external profilers record at the same time
    Counters counters;
    double counts[COUNTER_COUNT];
    const Record *records;
    int64_t count, dropped;
    Activities activities;
};

static void choose_source(Collector *c, bool graphs) {
    Status status = cupti_open ? cupti_open(graphs, &c->cupti)
                               : fail(ERROR_DEVICE, "this build has no CUPTI: its headers were missing");
    c->source = status ? SOURCE_EVENTS : SOURCE_CUPTI;
    c->graphs = graphs && !status;
    if (status)
        snprintf(c->note, sizeof c->note, "%s%s", status_message(status),
                 graphs ? "; so steps are launched kernel by kernel, without graphs" : "");
    else if (graphs)
        snprintf(c->note, sizeof c->note, "steps are launched as graphs");
    status_free(status);
}

void collector_prepare(bool latency) {
    if (latency && cupti_prepare_latency) cupti_prepare_latency();
}

bool collector_graphs(const Collector *c) {
    return c->graphs;
}

Collector *collector_open(Device *device, const CollectorOptions *what) {
    Collector *c = memory_allocate(sizeof *c);
    *c = (Collector){.device = device,
                     .source = SOURCE_CLOCK,
                     .host_only = what->host_only,
                     .isolate = what->isolate && device->backend == BACKEND_CUDA};
    for (int i = 0; i < COUNTER_COUNT; i++) c->counts[i] = -1;
    if (what->timers)
        snprintf(c->note, sizeof c->note, "--timer-only: nothing is traced");
    else if (what->host_only)
        snprintf(c->note, sizeof c->note,
                 "the host's part of each operation; nothing of the GPU is recorded");
    else if (device->backend == BACKEND_CUDA)
        choose_source(c, what->graphs);
    else if (what->graphs)
        snprintf(c->note, sizeof c->note, "there are no graphs on the CPU");
    else if (what->latency)
        snprintf(c->note, sizeof c->note, "there are no queues on the CPU, so no latencies");
    else if (what->isolate)
        snprintf(c->note, sizeof c->note,
                 "on the CPU each primitive is alone anyway: --profile-isolate does nothing");
    if (c->isolate && !*c->note) snprintf(c->note, sizeof c->note, "the device rests before each primitive");
    RecorderOptions options = {
        .primitives = true, .whole = true, .timed = !c->cupti && !c->host_only, .isolate = c->isolate};
    if (c->cupti) {
        options.mark = c->cupti->mark;
        options.unmark = c->cupti->unmark;
        options.marker = c->cupti;
    }
    if (c->graphs) {
        options.capture = c->cupti->capture;
        options.replay = c->cupti->replay;
    }
    c->recorder = recorder_open(device, &options);
    return c;
}

void collector_close(Collector *c) {
    if (!c) return;
    watch_end(c->device);
    recorder_close(c->recorder);
    counters_close(&c->counters);
    if (c->cupti) c->cupti->close(c->cupti);
    memory_free(c);
}

Recorder *collector_recorder(const Collector *c) {
    return c->recorder;
}

Status collector_begin(Collector *c, bool warm) {
    recorder_clear(c->recorder);
    TRY(c->device->synchronize(c->device));
    counters_open(&c->counters);
    c->outside = !warm;
    if (c->outside) c->device->outside_profiler(c->device, true);
    if (c->cupti) {
        TRY(c->cupti->start(c->cupti));
        return c->device->synchronize(c->device); // its first call takes CUPTI up to 2 ms, which must not
                                                  // fall into a step
    }
    if (!c->device->watcher) watch_begin(c->device, c->recorder);
    return OK;
}

Status collector_end(Collector *c) {
    TRY(c->device->synchronize(c->device));
    watch_end(c->device);
    if (c->cupti) TRY(c->cupti->stop(c->cupti, &c->activities));
    if (c->outside) c->device->outside_profiler(c->device, false);
    counters_read(&c->counters, c->counts);
    counters_close(&c->counters);
    return recorder_read(c->recorder, &c->records, &c->count, &c->dropped);
}

/* ---- device events and calls from CUPTI ---- */

/* Maps each correlation id, from the smallest on, to the event of its call. */
typedef struct {
    int64_t *call;
    uint32_t first;
    int64_t count;
} Calls;

static Calls open_calls(const Activities *a) {
    uint32_t first = UINT32_MAX, last = 0;
    for (int64_t i = 0; i < a->count; i++) {
        uint32_t correlation = a->activities[i].correlation;
        first = correlation < first ? correlation : first;
        last = correlation > last ? correlation : last;
    }
    Calls calls = {.first = first, .count = a->count ? (int64_t)last - first + 1 : 0};
    calls.call = memory_array((size_t)calls.count + 1, sizeof *calls.call);
    for (int64_t i = 0; i < calls.count; i++) calls.call[i] = -1;
    return calls;
}

/* The system's thread and stream numbers are replaced by 0, 1, ... in order of first use. */
enum { NUMBERS_MOST = TRACE_READERS };
typedef struct {
    int64_t known[NUMBERS_MOST];
    int32_t count;
} Numbering;

static int32_t number_of(Numbering *n, int64_t value) {
    for (int32_t i = 0; i < n->count; i++)
        if (n->known[i] == value) return i;
    if (n->count == NUMBERS_MOST) return NUMBERS_MOST - 1;
    n->known[n->count] = value;
    return n->count++;
}

static int64_t marked_event(const Making *m, int64_t mark) {
    return mark >= 0 && mark < m->count ? m->event[mark] : -1;
}

static TraceEvent activity_event(const Making *m, const Activity *a, const char *name) {
    TraceEvent e = trace_event(m->trace, a->kind, name);
    e.begin = a->begin - m->origin;
    e.end = a->end - m->origin;
    e.parent = marked_event(m, a->mark);
    e.step = e.parent >= 0 ? m->trace->events[e.parent].step : -1;
    e.phase = e.parent >= 0 ? m->trace->events[e.parent].phase : PHASE_OTHER;
    return e;
}

static void add_call(Making *m, const Activity *a, Calls *calls, Numbering *threads) {
    char name[96]; // without the version suffix: "cudaLaunchKernelExC_v11060"
    snprintf(name, sizeof name, "%s", a->name);
    char *version = strstr(name, "_v");
    if (version && strspn(version + 2, "0123456789") == strlen(version + 2)) *version = 0;
    TraceEvent e = activity_event(m, a, name);
    e.thread = number_of(threads, a->thread);
    calls->call[a->correlation - calls->first] = trace_add(m->trace, &e);
}

static void add_activity(Making *m, const MultiprocessorLimits *limits, const Activity *a, const Calls *calls,
                         Numbering *streams) {
    OWNED char *demangled = a->kind == TRACE_KERNEL ? kernel_demangle(a->name) : NULL;
    TraceEvent e = activity_event(m, a, demangled ? demangled : a->name);
    e.stream = number_of(streams, a->stream);
    e.queued = a->queued ? a->queued - m->origin : 0;
    e.submitted = a->submitted ? a->submitted - m->origin : 0;
    e.launch = calls->call[a->correlation - calls->first];
    e.kernel = a->kernel;
    e.copy = a->copy;
    if (a->kind == TRACE_KERNEL) e.kernel.occupancy = kernel_occupancy(limits, &a->kernel);
    trace_add(m->trace, &e);
}

static void add_activities(Making *m, const Collector *collector) {
    const Activities *a = &collector->activities;
    Numbering threads = {0}, streams = {0};
    Calls calls = open_calls(a);
    for (int64_t i = 0; i < a->count; i++) /* except CUPTI's own setup, before the first record */
        if (a->activities[i].kind == TRACE_RUNTIME && a->activities[i].begin >= m->origin)
            add_call(m, &a->activities[i], &calls, &threads);
    for (int64_t i = 0; i < a->count; i++)
        if (a->activities[i].kind != TRACE_RUNTIME)
            add_activity(m, &collector->device->limits, &a->activities[i], &calls, &streams);
    memory_free(calls.call);
}

/* ---- the whole ---- */

/* The words of this process's command line, separated by blanks. */
static void read_command(char *text, size_t size) {
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    for (size_t i = 0; i + 1 < length; i++)
        if (!text[i]) text[i] = ' ';
}

static void set_provenance(const Device *device, Trace *t) {
    char command[4000], date[32] = "", clocks[CLOCKS_BYTES], driver[CLOCKS_BYTES];
    struct tm utc;
    time_t now = time(NULL);
    read_command(command, sizeof command);
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &utc);
    t->run.command = trace_name(t, command);
    t->run.version = trace_name(t, FUSEBOX_VERSION);
    t->run.date = trace_name(t, date);
    t->run.commit = trace_name(t, version_commit());
    t->run.build = trace_name(t, version_build());
    clocks_of_processor(clocks);
    t->run.host_clocks = trace_name(t, clocks);
    clocks_of_gpu(device, driver, clocks);
    t->run.driver = trace_name(t, driver);
    t->run.device_clocks = trace_name(t, clocks);
}

static void set_run(const Collector *c, const TraceRun *run, Trace *t) {
    TraceRun *to = &t->run;
    *to = *run;
    to->step_ms = to->traced_ms = to->reader_ms = to->step_tokens = to->traced_tokens = NULL;
    to->step_count = to->traced_count = 0;
    to->source = c->source;
    to->source_note = trace_name(t, c->note);
    to->graphs = c->graphs;
    to->isolate = c->isolate;
    to->host_only = c->host_only;
    if (c->host_only) to->measured = to->sheet = (Peaks){0}; // the device's limits do not bound launches
    to->device = trace_name(t, c->device->name);
    to->library = trace_name(t, c->device->library);
    char host[PROCESSOR_BYTES];
    device_processor(host);
    to->host = trace_name(t, *host ? host : "a processor without a name");
    to->model = trace_name(t, run->model);
    to->dtype = trace_name(t, run->dtype);
    to->program = trace_name(t, run->program);
    to->unit = trace_name(t, trace_unit(run));
    to->step = trace_name(t, run->step ? run->step : "");
    to->engine = trace_name(t, run->engine ? run->engine : "");
    to->window = trace_name(t, run->window);
    to->measured.note = NULL; // the note of the start, which has already been reported
    set_provenance(c->device, t);
    trace_set_settings(t, run->settings, run->settings_count);
    to->device_count = 1;
    to->first_step = -1;
    to->threads = c->device->threads;
    to->launches = c->cupti ? c->activities.launches : -1;
    to->dropped = c->dropped + (c->cupti ? c->activities.dropped : 0);
    memcpy(to->counters, c->counts, sizeof to->counters);
    to->counters_note = counters_note(&c->counters);
}

Status collector_trace(const Collector *c, const TraceRun *run, const Arena arenas[ARENA_COUNT],
                       Trace **trace) {
    Trace *t = trace_open();
    Making m = {.records = c->records, .count = c->count, .trace = t, .outer = -1};
    m.event = memory_array((size_t)c->count + 1, sizeof *m.event);
    m.origin = c->count ? record_ns(c->records[0].cpu_start) : 0;
    set_run(c, run, t);
    t->run.origin = m.origin;
    records_add_host(&m);
    records_add_readings(&m, c->recorder);
    if (c->cupti)
        add_activities(&m, c);
    else
        records_add_device(&m);
    records_add_memory(&m, c->recorder, c->device->workspace, arenas);
    for (int64_t i = 0; i < t->count && t->run.first_step < 0; i++)
        if (t->events[i].kind == TRACE_STEP) t->run.first_step = t->events[i].step;
    memory_free(m.event);
    Status status = trace_finish(t);
    if (status)
        trace_close(t);
    else
        *trace = t;
    return status;
}
