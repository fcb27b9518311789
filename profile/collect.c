#include "profile/collect.h"

#include "base/memory.h"
#include "profile/collect_internal.h"
#include "profile/spans.h"
#include "profile/watch.h"

#include <stdio.h>
#include <string.h>

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

void collector_prepare(const CollectorOptions *options) {
    if (options->latency && cupti_prepare_latency) cupti_prepare_latency();
}

bool collector_graphs(const Collector *c) {
    return c->graphs;
}

Status collector_open(Device *device, const CollectorOptions *what, Collector **collector) {
    Collector *c = memory_allocate(sizeof *c);
    if (!c) return fail(ERROR_MEMORY, "out of host memory for the profile");
    *c = (Collector){.device = device, .source = SOURCE_CLOCK, .apart = what->apart};
    for (int i = 0; i < COUNTER_COUNT; i++) c->counts[i] = -1;
    if (what->timers)
        snprintf(c->note, sizeof c->note, "--timer-only: nothing is traced");
    else if (device->backend == BACKEND_CUDA)
        choose_source(c, what->graphs);
    else if (what->graphs)
        snprintf(c->note, sizeof c->note, "there are no graphs on the CPU");
    else if (what->latency)
        snprintf(c->note, sizeof c->note, "there are no queues on the CPU, so no latencies");
    if (what->apart && !*c->note) snprintf(c->note, sizeof c->note, "the device rests before each primitive");
    RecorderOptions options = {.primitives = true, .whole = true, .timed = !c->cupti, .apart = what->apart};
    if (c->cupti) {
        options.mark = c->cupti->mark;
        options.unmark = c->cupti->unmark;
        options.marker = c->cupti;
    }
    if (c->graphs) {
        options.capture = c->cupti->capture;
        options.replay = c->cupti->replay;
    }
    Status status = recorder_open(device, &options, &c->recorder);
    if (status)
        collector_close(c);
    else
        *collector = c;
    return status;
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
    if (c->cupti) return c->cupti->start(c->cupti);
    return c->device->watcher ? OK : watch_begin(c->device, c->recorder);
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

/* ---- host events ---- */

static bool has_inside(const Collector *c, int64_t i) {
    return i + 1 < c->count && c->records[i + 1].parent == i;
}

static bool is_transfer(RecordKind kind) {
    return kind >= RECORD_UPLOAD;
}

/* A scope right inside a step that bears a phase's name is that phase. */
static Phase phase_of(const char *name) {
    for (int phase = 0; phase < PHASE_OTHER; phase++)
        if (strcmp(name, phase_name((Phase)phase)) == 0) return (Phase)phase;
    return PHASE_OTHER;
}

static TraceKind kind_of(const Making *m, const Record *r, int64_t parent, Phase *phase) {
    switch (r->kind) {
    case RECORD_OPERATION: return TRACE_OPERATION;
    case RECORD_PRIMITIVE: return TRACE_PRIMITIVE;
    default: break;
    }
    if (parent < 0 && strcmp(r->name, "step") == 0) return TRACE_STEP;
    if (r->parent >= 0 && m->collector->records[r->parent].kind == RECORD_GRAPH)
        parent = m->trace->events[parent].parent; // a graph's phases are the step's
    bool inside = parent >= 0 && m->trace->events[parent].kind == TRACE_STEP;
    if (!inside || (*phase = phase_of(r->name)) == PHASE_OTHER) return TRACE_SCOPE;
    return TRACE_PHASE;
}

/* What the record's host event and its device events have in common. */
static TraceEvent begin_event(const Making *m, int64_t i, TraceKind kind, const char *name) {
    const Record *r = &m->collector->records[i];
    TraceEvent e = trace_event(m->trace, kind, name);
    e.begin = collect_ns(r->cpu_start) - m->origin;
    e.end = collect_ns(r->cpu_end) - m->origin;
    e.instance = i;
    e.step = r->step;
    e.layer = r->layer;
    return e;
}

static Status add_host_event(Making *m, int64_t i) {
    const Record *r = &m->collector->records[i];
    int64_t parent = r->parent < 0 ? -1 : m->event[r->parent];
    if (r->kind == RECORD_LIBRARY || is_transfer(r->kind)) {
        m->event[i] = parent;
        return OK;
    }
    bool operation = r->kind == RECORD_OPERATION || r->kind == RECORD_PRIMITIVE;
    Phase phase = parent < 0 ? PHASE_OTHER : m->trace->events[parent].phase;
    TraceKind kind = kind_of(m, r, parent, &phase);
    TraceEvent e =
        begin_event(m, i, kind, r->kind == RECORD_OPERATION ? operation_name(r->operation) : r->name);
    e.thread = 0;
    e.parent = parent;
    e.phase = phase;
    if (operation) {
        e.in_operation = true;
        bool part = r->kind == RECORD_PRIMITIVE && parent >= 0; // also where another operation lends it
        e.operation = part ? m->trace->events[parent].operation : r->operation;
        e.pass = r->pass;
        e.form = r->form;
        e.call = trace_name(m->trace, r->call);
        e.category = category_of(r->operation, r->name);
        e.source = trace_name(m->trace, r->source);
        if (r->kind == RECORD_OPERATION) e.work = r->work;
        /* An operation stands where the first of its parts does. */
        if (e.source && parent >= 0 && !m->trace->events[parent].source)
            m->trace->events[parent].source = e.source;
    }
    return trace_add(m->trace, &e, &m->event[i]);
}

/* ---- device events without CUPTI: what was innermost ---- */

static TraceKind device_kind(RecordKind kind) {
    return kind == RECORD_FILL ? TRACE_FILL : is_transfer(kind) ? TRACE_COPY : TRACE_KERNEL;
}

static CopyDirection direction_of(RecordKind kind) {
    return kind == RECORD_UPLOAD     ? COPY_HOST_TO_DEVICE
           : kind == RECORD_DOWNLOAD ? COPY_DEVICE_TO_HOST
           : kind == RECORD_COPY     ? COPY_DEVICE_TO_DEVICE
                                     : COPY_OTHER;
}

/* When a record ran on its device, in ns since the origin. On the CPU that is when it ran. */
static Interval device_time(const Making *m, int64_t i) {
    const Collector *c = m->collector;
    const Record *r = &c->records[i];
    if (c->source == SOURCE_CLOCK)
        return (Interval){collect_ns(r->cpu_start) - m->origin, collect_ns(r->cpu_end) - m->origin};
    int64_t outermost = i; // whose beginning is the same moment on both clocks
    while (c->records[outermost].parent >= 0) outermost = c->records[outermost].parent;
    int64_t begin = collect_ns(c->records[outermost].cpu_start + r->device_start) - m->origin;
    return (Interval){begin, begin + collect_ns(1e-3 * r->device_ms)};
}

/* A library's call is the same kernel wherever it is made; parts of two operations, or of its two passes, are
 * two kernels, though they may bear one name. */
static void name_kernel(const Making *m, int64_t i, char *name, size_t size) {
    const Record *r = &m->collector->records[i];
    if (r->kind == RECORD_LIBRARY || is_transfer(r->kind)) {
        snprintf(name, size, "%s", r->name);
        return;
    }
    const TraceEvent *e = &m->trace->events[m->event[i]];
    snprintf(name, size, "%s %s%s%s", operation_name(e->operation), pass_name(e->pass), r->name ? ": " : "",
             r->name ? r->name : "");
}

static Status add_device_event(Making *m, int64_t i, Interval when) {
    const Record *r = &m->collector->records[i];
    char name[256];
    name_kernel(m, i, name, sizeof name);
    TraceEvent e = begin_event(m, i, device_kind(r->kind), name);
    e.begin = when.begin;
    e.end = when.end > when.begin ? when.end : when.begin;
    e.stream = 0;
    e.parent = m->event[i];
    if (is_transfer(r->kind)) {
        e.category = CATEGORY_MEMORY;
        e.copy = (CopyShape){.direction = direction_of(r->kind), .bytes = (int64_t)r->work.bytes};
    }
    return trace_add(m->trace, &e, NULL);
}

/* What lies between the copies and fills inside a record is its own: the kernels around them. A library's
 * call, or primitives, are all there is in theirs. */
static Status add_own(Making *m, int64_t i) {
    const Collector *c = m->collector;
    Interval whole = device_time(m, i);
    for (int64_t k = i + 1; k < c->count && c->records[k].parent >= i; k++)
        if (!is_transfer(c->records[k].kind)) return OK;
    for (int64_t k = i + 1; k < c->count && c->records[k].parent >= i; k++) {
        Interval inner = device_time(m, k);
        if (inner.begin > whole.begin) TRY(add_device_event(m, i, (Interval){whole.begin, inner.begin}));
        whole.begin = inner.end;
    }
    return whole.end > whole.begin || !has_inside(c, i) ? add_device_event(m, i, whole) : OK;
}

static Status add_innermost(Making *m) {
    const Collector *c = m->collector;
    for (int64_t i = 0; i < c->count; i++)
        if (c->records[i].kind != RECORD_SCOPE && c->records[i].kind != RECORD_GRAPH) TRY(add_own(m, i));
    return OK;
}

/* ---- device events and calls from CUPTI ---- */

/* For each correlation number, from the smallest on, the call's event. */
typedef struct {
    int64_t *call;
    uint32_t first;
    int64_t count;
} Calls;

static Status open_calls(const Activities *a, Calls *calls) {
    uint32_t first = UINT32_MAX, last = 0;
    for (int64_t i = 0; i < a->count; i++) {
        uint32_t correlation = a->activities[i].correlation;
        first = correlation < first ? correlation : first;
        last = correlation > last ? correlation : last;
    }
    *calls = (Calls){.first = first, .count = a->count ? (int64_t)last - first + 1 : 0};
    calls->call = memory_array((size_t)(calls->count ? calls->count : 1), sizeof *calls->call);
    if (!calls->call) return fail(ERROR_MEMORY, "out of host memory for the profile");
    for (int64_t i = 0; i < calls->count; i++) calls->call[i] = -1;
    return OK;
}

/* The system's numbers of threads or streams become 0, 1, ... in the order in which they appear. */
enum { NUMBERS_MOST = 64 };
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
    return mark >= 0 && mark < m->collector->count ? m->event[mark] : -1;
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

static Status add_call(Making *m, const Activity *a, Calls *calls, Numbering *threads) {
    char name[96]; // without the version at the end: "cudaLaunchKernelExC_v11060"
    snprintf(name, sizeof name, "%s", a->name);
    char *version = strstr(name, "_v");
    if (version && strspn(version + 2, "0123456789") == strlen(version + 2)) *version = 0;
    TraceEvent e = activity_event(m, a, name);
    e.thread = number_of(threads, a->thread);
    return trace_add(m->trace, &e, &calls->call[a->correlation - calls->first]);
}

static Status add_activity(Making *m, const Activity *a, const Calls *calls, Numbering *streams) {
    const Device *device = m->collector->device;
    char *demangled = a->kind == TRACE_KERNEL ? kernel_demangle(a->name) : NULL;
    TraceEvent e = activity_event(m, a, demangled ? demangled : a->name);
    memory_free(demangled);
    e.stream = number_of(streams, a->stream);
    e.queued = a->queued ? a->queued - m->origin : 0;
    e.submitted = a->submitted ? a->submitted - m->origin : 0;
    e.launch = calls->call[a->correlation - calls->first];
    e.kernel = a->kernel;
    e.copy = a->copy;
    if (a->kind == TRACE_KERNEL)
        e.kernel.occupancy = kernel_occupancy(&device->limits, &a->kernel);
    else
        e.category = CATEGORY_MEMORY;
    return trace_add(m->trace, &e, NULL);
}

static Status add_activities(Making *m) {
    const Activities *a = &m->collector->activities;
    Numbering threads = {0}, streams = {0};
    Calls calls;
    TRY(open_calls(a, &calls));
    Status status = OK;
    for (int64_t i = 0; i < a->count && !status; i++)
        if (a->activities[i].kind == TRACE_RUNTIME) status = add_call(m, &a->activities[i], &calls, &threads);
    for (int64_t i = 0; i < a->count && !status; i++)
        if (a->activities[i].kind != TRACE_RUNTIME)
            status = add_activity(m, &a->activities[i], &calls, &streams);
    memory_free(calls.call);
    return status;
}

/* ---- the whole ---- */

static void set_run(const Making *m, const TraceRun *run) {
    const Collector *c = m->collector;
    Trace *t = m->trace;
    TraceRun *to = &t->run;
    *to = *run;
    to->step_ms = to->traced_ms = to->reader_ms = to->step_tokens = to->traced_tokens = NULL;
    to->step_count = to->traced_count = 0;
    to->source = c->source;
    to->source_note = trace_name(t, c->note);
    to->graphs = c->graphs;
    to->apart = c->apart;
    to->device = trace_name(t, c->device->name);
    to->library = trace_name(t, c->device->library);
    char host[PROCESSOR_BYTES];
    device_processor(host);
    to->host = trace_name(t, *host ? host : "a processor without a name");
    to->model = trace_name(t, run->model);
    to->dtype = trace_name(t, run->dtype);
    to->program = trace_name(t, run->program);
    to->step = trace_name(t, run->step ? run->step : "");
    to->window = trace_name(t, run->window);
    to->device_count = 1;
    to->first_step = -1;
    to->threads = c->device->threads;
    to->launches = c->cupti ? c->activities.launches : -1;
    to->dropped = c->dropped + (c->cupti ? c->activities.dropped : 0);
    memcpy(to->counters, c->counts, sizeof to->counters);
    to->counters_note = counters_note(&c->counters);
}

static Status make(Making *m, const TraceRun *run, const Arena arenas[ARENA_COUNT]) {
    const Collector *c = m->collector;
    set_run(m, run);
    for (int64_t i = 0; i < c->count; i++) TRY(add_host_event(m, i));
    TRY(c->cupti ? add_activities(m) : add_innermost(m));
    TRY(collect_memory(m, arenas));
    for (int64_t i = 0; i < m->trace->count && m->trace->run.first_step < 0; i++)
        if (m->trace->events[i].kind == TRACE_STEP) m->trace->run.first_step = m->trace->events[i].step;
    return trace_finish(m->trace);
}

Status collector_trace(const Collector *c, const TraceRun *run, const Arena arenas[ARENA_COUNT],
                       Trace **trace) {
    Making m = {.collector = c, .origin = c->count ? collect_ns(c->records[0].cpu_start) : 0};
    m.event = memory_array((size_t)(c->count ? c->count : 1), sizeof *m.event);
    if (!m.event) return fail(ERROR_MEMORY, "out of host memory for the profile");
    Status status = trace_open(&m.trace);
    if (!status) status = make(&m, run, arenas);
    memory_free(m.event);
    if (status)
        trace_close(m.trace);
    else
        *trace = m.trace;
    return status;
}
