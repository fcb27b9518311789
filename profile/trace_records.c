#include "profile/trace_records.h"

#include "base/memory.h"
#include "report/spans.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHAPES_BYTES = 256 };

/* "[[4, 64, 64], [], [64]]" */
static void shapes_print(const Shape shapes[], int count, char text[SHAPES_BYTES]) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < count && used < SHAPES_BYTES; i++) {
        used += (size_t)snprintf(text + used, SHAPES_BYTES - used, i ? ", [" : "[[");
        for (int axis = 0; axis < shapes[i].rank && used < SHAPES_BYTES; axis++)
            used += (size_t)snprintf(text + used, SHAPES_BYTES - used, axis ? ", %lld" : "%lld",
                                     (long long)shapes[i].d[axis]);
        if (used < SHAPES_BYTES)
            used += (size_t)snprintf(text + used, SHAPES_BYTES - used, i == count - 1 ? "]]" : "]");
    }
}

static bool has_inside(const Making *m, int64_t i) {
    return i + 1 < m->count && m->records[i + 1].parent == i;
}

static bool is_transfer(RecordKind kind) {
    return kind >= RECORD_UPLOAD;
}

static TraceKind kind_of(const Making *m, const Record *r, int64_t parent, Phase *phase) {
    if (r->kind == RECORD_OPERATION) return TRACE_OPERATION;
    if (r->kind == RECORD_PRIMITIVE) return TRACE_PRIMITIVE;
    if (r->scope == SCOPE_STEP && parent < 0) return TRACE_STEP;
    if (r->parent >= 0 && m->records[r->parent].kind == RECORD_GRAPH)
        parent = m->trace->events[parent].parent; // the phases of a graph are those of the step that launches
                                                  // it
    bool inside = parent >= 0 && m->trace->events[parent].kind == TRACE_STEP;
    if (inside) *phase = r->scope == SCOPE_PHASE ? r->phase : PHASE_OTHER;
    return inside && *phase != PHASE_OTHER ? TRACE_PHASE : TRACE_SCOPE;
}

/* The fields that the record's host event and device events share. */
static TraceEvent begin_event(const Making *m, int64_t i, TraceKind kind, const char *name) {
    const Record *r = &m->records[i];
    TraceEvent e = trace_event(m->trace, kind, name);
    e.begin = record_ns(r->cpu_start) - m->origin;
    e.end = record_ns(r->cpu_end) - m->origin;
    e.instance = i;
    e.step = r->step;
    e.layer = r->layer;
    return e;
}

/* The sizes of inputs, or their strides; NULL without inputs. */
static const char *inputs_text(Trace *t, const RecordInput inputs[RECORD_INPUTS], bool strides) {
    Shape shapes[RECORD_INPUTS];
    char text[SHAPES_BYTES];
    int count = 0;
    for (int i = 0; i < RECORD_INPUTS; i++) {
        shapes[i] = inputs[i].shape;
        if (strides) memcpy(shapes[i].d, inputs[i].stride, sizeof shapes[i].d);
        if (shapes[i].rank) count = i + 1;
    }
    shapes_print(shapes, count, text);
    return count ? trace_name(t, text) : NULL;
}

static void add_host_event(Making *m, int64_t i) {
    const Record *r = &m->records[i];
    int64_t parent = r->parent < 0 ? m->outer : m->event[r->parent];
    if (r->kind == RECORD_LIBRARY || is_transfer(r->kind)) {
        m->event[i] = parent;
        return;
    }
    bool operation = r->kind == RECORD_OPERATION || r->kind == RECORD_PRIMITIVE;
    Phase phase = parent < 0 ? PHASE_OTHER : m->trace->events[parent].phase;
    TraceKind kind = kind_of(m, r, parent, &phase);
    TraceEvent e =
        begin_event(m, i, kind, r->kind == RECORD_OPERATION ? operation_name(r->operation) : r->name);
    e.thread = 0;
    e.parent = parent;
    e.phase = phase;
    e.own = r->scope == SCOPE_OWN;
    e.host = r->scope == SCOPE_HOST || r->kind == RECORD_GRAPH;
    if (operation) {
        bool part = r->kind == RECORD_PRIMITIVE && parent >= 0; // a primitive belongs to its parent's
                                                                // operation
        e.operation =
            part ? m->trace->events[parent].operation : trace_name(m->trace, operation_name(r->operation));
        e.pass = r->pass;
        e.form = r->form;
        e.call = trace_name(m->trace, r->call);
        e.category = r->category;
        e.arithmetic = r->arithmetic;
        e.source = trace_name(m->trace, r->source);
        e.torch = trace_name(m->trace, r->torch.name);
        e.torch_part = r->torch.part;
        e.shapes = inputs_text(m->trace, r->inputs, false);
        e.strides = inputs_text(m->trace, r->inputs, true);
        if (r->kind == RECORD_OPERATION) e.work = r->work;
        e.traffic = r->traffic;
        /* An operation's source is that of its first part. */
        if (e.source && parent >= 0 && !m->trace->events[parent].source)
            m->trace->events[parent].source = e.source;
    }
    m->event[i] = trace_add(m->trace, &e);
}

void records_add_host(Making *m) {
    for (int64_t i = 0; i < m->count; i++) add_host_event(m, i);
}

void records_add_readings(Making *m, const Recorder *recorder) {
    int64_t count;
    const RecordReading *readings = recorder_readings(recorder, &count);
    for (int64_t i = 0; i < count; i++) {
        TraceEvent e = trace_event(m->trace, TRACE_SCOPE, "read a batch");
        e.begin = record_ns(readings[i].begin) - m->origin;
        e.end = record_ns(readings[i].end) - m->origin;
        if (e.end < 0) continue; // the batch was read before the window
        if (e.begin < 0) e.begin = 0;
        e.thread = TRACE_READERS + readings[i].worker - 1;
        e.phase = PHASE_READER;
        trace_add(m->trace, &e);
    }
}

/* ---- device events of innermost records ---- */

static TraceKind device_kind(RecordKind kind) {
    return kind == RECORD_FILL ? TRACE_FILL : is_transfer(kind) ? TRACE_COPY : TRACE_KERNEL;
}

static CopyDirection direction_of(RecordKind kind) {
    return kind == RECORD_UPLOAD     ? COPY_HOST_TO_DEVICE
           : kind == RECORD_DOWNLOAD ? COPY_DEVICE_TO_HOST
           : kind == RECORD_COPY     ? COPY_DEVICE_TO_DEVICE
                                     : COPY_OTHER;
}

/* When a record ran on its device, in ns since the origin; on the CPU the same as on the host. */
static Interval device_time(const Making *m, int64_t i) {
    const Record *r = &m->records[i];
    if (m->trace->run.source == SOURCE_CLOCK)
        return (Interval){record_ns(r->cpu_start) - m->origin, record_ns(r->cpu_end) - m->origin};
    int64_t outermost = i; // the outermost record begins at the same moment on both clocks
    while (m->records[outermost].parent >= 0) outermost = m->records[outermost].parent;
    int64_t begin = record_ns(m->records[outermost].cpu_start + r->device_start) - m->origin;
    return (Interval){begin, begin + record_ns(1e-3 * r->device_ms)};
}

/* A library's call is the same kernel wherever it is made. Primitives of two operations, or of two passes,
 * are different kernels, even with equal names. */
static void name_kernel(const Making *m, int64_t i, char *name, size_t size) {
    const Record *r = &m->records[i];
    if (r->kind == RECORD_LIBRARY || is_transfer(r->kind)) {
        snprintf(name, size, "%s", r->name);
        return;
    }
    const TraceEvent *e = &m->trace->events[m->event[i]];
    snprintf(name, size, "%s %s%s%s", e->operation, pass_name(e->pass), r->name ? ": " : "",
             r->name ? r->name : "");
}

static void add_device_event(Making *m, int64_t i, Interval when) {
    const Record *r = &m->records[i];
    char name[256];
    name_kernel(m, i, name, sizeof name);
    TraceEvent e = begin_event(m, i, device_kind(r->kind), name);
    e.begin = when.begin;
    e.end = when.end > when.begin ? when.end : when.begin;
    e.stream = 0;
    e.parent = m->event[i];
    if (is_transfer(r->kind))
        e.copy = (CopyShape){.direction = direction_of(r->kind), .bytes = (int64_t)r->work.bytes};
    trace_add(m->trace, &e);
}

/* The gaps between copies and fills inside a record are the record's own kernels. A record with library calls
 * or primitives has no other work. */
static void add_own(Making *m, int64_t i) {
    Interval whole = device_time(m, i);
    for (int64_t k = i + 1; k < m->count && m->records[k].parent >= i; k++)
        if (!is_transfer(m->records[k].kind)) return;
    for (int64_t k = i + 1; k < m->count && m->records[k].parent >= i; k++) {
        Interval inner = device_time(m, k);
        if (inner.begin > whole.begin) add_device_event(m, i, (Interval){whole.begin, inner.begin});
        whole.begin = inner.end;
    }
    if (whole.end > whole.begin || !has_inside(m, i)) add_device_event(m, i, whole);
}

void records_add_device(Making *m) {
    for (int64_t i = 0; i < m->count; i++)
        if (m->records[i].kind != RECORD_SCOPE && m->records[i].kind != RECORD_GRAPH) add_own(m, i);
}

/* ---- memory ---- */

/* The first event of the kind that begins at that time or later inside `outer`; if there is none, `outer`. */
static int64_t next_inside(const Trace *t, int64_t outer, int64_t at, TraceKind kind) {
    for (int64_t i = outer + 1; i < t->count && t->events[i].begin < t->events[outer].end; i++)
        if (t->events[i].kind == kind && t->events[i].begin >= at) return i;
    return outer;
}

/* Whether an operation or a primitive declares that it fills this allocation. */
static bool fills(const Making *m, const TraceEvent *e, const RecordMemory *taken) {
    const void *const *filled = m->records[e->instance].fills;
    for (int i = 0; i < RECORD_FILLS; i++)
        if ((const char *)filled[i] >= taken->data && (const char *)filled[i] < taken->data + taken->bytes)
            return true;
    return false;
}

/* Finds the event that fills an allocation. Memory that an operation fills is allocated in it or directly
 * before it: the filler is the last of its primitives that declares so, or else the next event to begin.
 * Undeclared memory belongs to the event that allocates it. */
static int64_t filler_of(const Making *m, int64_t taker, int64_t at, const RecordMemory *taken) {
    const Trace *t = m->trace;
    int64_t operation = trace_above(t, taker, TRACE_OPERATION), filler = -1;
    bool inside = operation >= 0;
    if (!inside) operation = next_inside(t, taker, at, TRACE_OPERATION);
    const TraceEvent *o = &t->events[operation];
    if (o->kind != TRACE_OPERATION) return taker;
    for (int64_t i = operation + 1; i < t->count && t->events[i].begin < o->end; i++)
        if (t->events[i].parent == operation && t->events[i].kind == TRACE_PRIMITIVE &&
            fills(m, &t->events[i], taken))
            filler = i;
    if (filler >= 0) return filler;
    return inside || fills(m, o, taken) ? next_inside(t, operation, at, TRACE_PRIMITIVE) : taker;
}

static const MemoryClass classes[] = {
    [ARENA_PARAMETERS] = MEMORY_PARAMETERS, [ARENA_GRADIENTS] = MEMORY_GRADIENTS,
    [ARENA_OPTIMIZER] = MEMORY_OPTIMIZER,   [ARENA_SAVED] = MEMORY_SAVED,
    [ARENA_SCRATCH] = MEMORY_SCRATCH,       [ARENA_CACHE] = MEMORY_CACHE,
};

static int64_t cache_bytes(const Arena *saved, size_t used) {
    size_t bytes = 0;
    for (int i = 0; i < saved->count && saved->entries[i].offset + saved->entries[i].bytes <= used; i++)
        if (saved->entries[i].kind == ARENA_CACHE) bytes += saved->entries[i].bytes;
    return (int64_t)bytes;
}

void records_add_memory(Making *m, const Recorder *recorder, size_t workspace,
                        const Arena arenas[ARENA_COUNT]) {
    int64_t count, cached = 0;
    const RecordMemory *memory = recorder_memory(recorder, &count);
    if (workspace) {
        trace_add_memory(m->trace, (TraceMemory){0, MEMORY_WORKSPACE, (int64_t)workspace, -1});
        trace_add_tensor(m->trace, (TraceTensor){trace_name(m->trace, "workspace of libraries"),
                                                 MEMORY_WORKSPACE, (int64_t)workspace});
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at = record_ns(memory[i].at) - m->origin;
        TraceMemory sample = {at < 0 ? 0 : at, classes[memory[i].arena], (int64_t)memory[i].used,
                              memory[i].record < 0 ? -1 : m->event[memory[i].record]};
        if (sample.event >= 0 && memory[i].data)
            sample.event = filler_of(m, sample.event, sample.at, &memory[i]);
        int64_t cache = cached;
        if (memory[i].arena == ARENA_SAVED) cache = cache_bytes(&arenas[ARENA_SAVED], memory[i].used);
        if (memory[i].arena == ARENA_SAVED) sample.bytes -= cache;
        trace_add_memory(m->trace, sample);
        if (cache == cached) continue;
        trace_add_memory(m->trace, (TraceMemory){sample.at, MEMORY_CACHE, cache, sample.event});
        cached = cache;
    }
    for (int arena = 0; arena < ARENA_COUNT; arena++)
        for (int i = 0; i < arenas[arena].at_peak_count; i++) {
            const ArenaEntry *entry = &arenas[arena].at_peak[i];
            TraceTensor tensor = {trace_name(m->trace, arena_name(entry).text), classes[entry->kind],
                                  (int64_t)entry->bytes};
            trace_add_tensor(m->trace, tensor);
        }
}

/* ---- operations alone, timed one by one ---- */

/* Steps enclose events without a parent. */
static void add_steps(Making *m) {
    for (int64_t i = 0; i < m->count; i++) {
        const Record *r = &m->records[i];
        if (m->outer < 0 || m->trace->events[m->outer].step != r->step) {
            TraceEvent e = begin_event(m, i, TRACE_STEP, "step");
            e.thread = 0;
            m->outer = trace_add(m->trace, &e);
        }
        m->trace->events[m->outer].end = record_ns(r->cpu_end) - m->origin;
        add_host_event(m, i);
    }
}

Status records_trace(const Record *records, int64_t count, const Peaks *limits, Trace **trace) {
    size_t room = (size_t)count + 1;
    double *ms = memory_array(room, sizeof *ms); // excludes the time of inner records
    Making m = {.records = records, .count = count, .trace = trace_open(), .outer = -1};
    m.event = memory_array(room, sizeof *m.event);
    m.origin = count ? record_ns(records[0].cpu_start) : 0;
    m.trace->run.measured = *limits;
    add_steps(&m);
    for (int64_t i = 0; i < count; i++) {
        ms[i] += records[i].device_ms;
        if (records[i].parent >= 0) ms[records[i].parent] -= records[i].device_ms;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t launches = records[i].launches, begin = m.trace->events[m.event[i]].begin;
        for (int64_t k = i + 1; k < count && records[k].parent >= i; k++)
            if (records[k].parent == i) launches -= records[k].launches;
        add_device_event(&m, i, (Interval){begin, begin + record_ns(1e-3 * fmax(0, ms[i]))});
        m.trace->events[m.trace->count - 1].launches = launches;
    }
    memory_free(m.event);
    memory_free(ms);
    Status status = trace_finish(m.trace);
    if (status)
        trace_close(m.trace);
    else
        *trace = m.trace;
    return status;
}
