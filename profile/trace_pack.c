#include "profile/trace_pack.h"

#include "base/memory.h"

#include <stddef.h>
#include <string.h>

/* Structs are copied bytewise, with texts replaced by numbers of names: every text of a run and of an event
 * must be listed here. */
static const size_t run_texts[] = {
    offsetof(TraceRun, source_note),   offsetof(TraceRun, device),     offsetof(TraceRun, library),
    offsetof(TraceRun, host),          offsetof(TraceRun, model),      offsetof(TraceRun, dtype),
    offsetof(TraceRun, program),       offsetof(TraceRun, step),       offsetof(TraceRun, window),
    offsetof(TraceRun, counters_note), offsetof(TraceRun, engine),     offsetof(TraceRun, unit),
    offsetof(TraceRun, command),       offsetof(TraceRun, version),    offsetof(TraceRun, date),
    offsetof(TraceRun, commit),        offsetof(TraceRun, build),      offsetof(TraceRun, driver),
    offsetof(TraceRun, device_clocks), offsetof(TraceRun, host_clocks)};
static const size_t event_texts[] = {offsetof(TraceEvent, name),   offsetof(TraceEvent, operation),
                                     offsetof(TraceEvent, call),   offsetof(TraceEvent, source),
                                     offsetof(TraceEvent, torch),  offsetof(TraceEvent, shapes),
                                     offsetof(TraceEvent, strides)};
enum {
    RUN_TEXTS = sizeof run_texts / sizeof *run_texts,
    EVENT_TEXTS = sizeof event_texts / sizeof *event_texts
};

/* The header. It is followed by zero-terminated names, events, memory samples, and times. */
typedef struct {
    uint64_t layout;
    int64_t name_bytes, names, events, samples;
    TraceRun run;
} Head;

static const int64_t TIME_MOST = (int64_t)1 << 56; // ns, over two years: sums of such times do not overflow

static const uint64_t layout = sizeof(Head) << 40 | sizeof(TraceEvent) << 20 | sizeof(TraceMemory);

/* ---- packing ---- */

typedef struct {
    char *data;
    size_t bytes;
    int64_t room;
} Pack;

static void put(Pack *p, const void *from, size_t bytes) {
    p->data = memory_grow(p->data, &p->room, (int64_t)(p->bytes + bytes), 1);
    if (bytes) memcpy(p->data + p->bytes, from, bytes);
    p->bytes += bytes;
}

static void number_texts(const Trace *t, void *object, const size_t *texts, int count) {
    for (int i = 0; i < count; i++) {
        const char **text = (const char **)(void *)((char *)object + texts[i]);
        *text = (const char *)(intptr_t)trace_name_number(t, *text);
    }
}

static void keep_texts(Trace *t, void *object, const size_t *texts, int count) {
    for (int i = 0; i < count; i++) (void)trace_name(t, *(const char **)(void *)((char *)object + texts[i]));
}

/* Must come before any number is read, because adding a name may change the numbers of others. */
static void name_all(Trace *t) {
    keep_texts(t, &t->run, run_texts, RUN_TEXTS);
    for (int64_t i = 0; i < t->count; i++) keep_texts(t, &t->events[i], event_texts, EVENT_TEXTS);
}

static void put_number(Pack *p, double value) {
    put(p, &value, sizeof value);
}

static void put_times(Pack *p, const TraceRun *r) {
    put(p, r->step_ms, (size_t)r->step_count * sizeof(double));
    put(p, r->reader_ms, (size_t)r->step_count * sizeof(double));
    for (int64_t i = 0; i < r->step_count; i++) put_number(p, trace_step_tokens(r, i));
    put(p, r->traced_ms, (size_t)r->traced_count * sizeof(double));
    for (int64_t i = 0; i < r->traced_count; i++) put_number(p, trace_traced_tokens(r, i));
}

static void put_names(Pack *p, const Trace *t) {
    for (int64_t i = 0; i < trace_name_room(t); i++) {
        const char *name = trace_name_numbered(t, i);
        put(p, name ? name : "", name ? strlen(name) + 1 : 1);
    }
}

void trace_pack(Trace *t, void **data, size_t *bytes) {
    Pack p = {0};
    Head head = {.layout = layout, .events = t->count, .samples = t->memory_count, .run = t->run};
    name_all(t);
    number_texts(t, &head.run, run_texts, RUN_TEXTS);
    put(&p, &head, sizeof head);
    put_names(&p, t);
    head.names = trace_name_room(t);
    head.name_bytes = (int64_t)(p.bytes - sizeof head);
    memcpy(p.data, &head, sizeof head);
    for (int64_t i = 0; i < t->count; i++) {
        TraceEvent e = t->events[i];
        number_texts(t, &e, event_texts, EVENT_TEXTS);
        put(&p, &e, sizeof e);
    }
    put(&p, t->memory, (size_t)t->memory_count * sizeof *t->memory);
    put_times(&p, &t->run);
    *data = p.data;
    *bytes = p.bytes;
}

/* ---- unpacking ---- */

typedef struct {
    const char *data;
    size_t left;
    Trace *trace;
    const char **names; // (count) by their numbers in the packed trace
    int64_t count;
} Unpack;

static bool get(Unpack *u, void *to, int64_t count, size_t size) {
    if (count < 0 || (uint64_t)count > u->left / size) return false;
    if (count) memcpy(to, u->data, (size_t)count * size);
    u->data += (size_t)count * size;
    u->left -= (size_t)count * size;
    return true;
}

static bool name_texts(const Unpack *u, void *object, const size_t *texts, int count) {
    for (int i = 0; i < count; i++) {
        const char **text = (const char **)(void *)((char *)object + texts[i]);
        const intptr_t number = (intptr_t)*text;
        if (number < -1 || number >= u->count) return false;
        *text = number < 0 ? NULL : u->names[number];
    }
    return true;
}

static bool get_names(Unpack *u, int64_t bytes, int64_t count) {
    if (bytes < 0 || (uint64_t)bytes > u->left || count < 0 || count > bytes) return false;
    const char *end = u->data + bytes;
    u->names = memory_array((size_t)count + 1, sizeof *u->names);
    for (u->count = 0; u->count < count; u->count++) {
        size_t length = strnlen(u->data, (size_t)(end - u->data));
        if (u->data + length == end) return false;
        u->names[u->count] = trace_name(u->trace, u->data);
        u->data += length + 1;
    }
    u->left -= (size_t)bytes;
    return u->data == end;
}

static bool get_events(Unpack *u, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        TraceEvent e;
        if (!get(u, &e, 1, sizeof e) || !name_texts(u, &e, event_texts, EVENT_TEXTS) || !e.name) return false;
        if (e.kind >= TRACE_KIND_COUNT || e.phase >= PHASE_COUNT || e.category >= CATEGORY_COUNT ||
            e.arithmetic >= ARITHMETIC_COUNT || e.traffic >= TRAFFIC_COUNT || e.begin < -TIME_MOST ||
            e.begin > e.end || e.end > TIME_MOST)
            return false;
        trace_add(u->trace, &e);
    }
    return true;
}

static bool get_times(Unpack *u, const TraceRun *run) {
    const int64_t steps = run->step_count, traced = run->traced_count,
                  most = (int64_t)(u->left / sizeof(double));
    if (steps < 0 || steps > most || traced < 0 || traced > most ||
        (uint64_t)(3 * steps + 2 * traced) * sizeof(double) != u->left)
        return false;
    const char *at = u->data;
    OWNED double *times = memory_array(u->left / sizeof(double) + 1, sizeof *times);
    memcpy(times, at, u->left);
    trace_set_times(u->trace, times, times + steps, steps, times + 3 * steps, traced);
    trace_set_tokens(u->trace, times + 2 * steps, times + 3 * steps + traced);
    return true;
}

static bool get_all(Unpack *u) {
    Head head;
    if (!get(u, &head, 1, sizeof head) || head.layout != layout) return false;
    if (!get_names(u, head.name_bytes, head.names)) return false;
    if (!name_texts(u, &head.run, run_texts, RUN_TEXTS) || !get_events(u, head.events)) return false;
    for (int64_t i = 0; i < head.samples; i++) {
        TraceMemory sample;
        if (!get(u, &sample, 1, sizeof sample) || sample.class_ >= MEMORY_CLASS_COUNT) return false;
        trace_add_memory(u->trace, sample);
    }
    TraceRun *run = &u->trace->run;
    *run = head.run;
    run->step_ms = run->traced_ms = run->reader_ms = run->step_tokens = run->traced_tokens = NULL;
    run->settings = NULL; // rank 0 already has the settings
    run->settings_count = 0;
    return get_times(u, &head.run);
}

Status trace_unpack(const void *data, size_t bytes, Trace **trace) {
    Unpack u = {.data = data, .left = bytes, .trace = trace_open()};
    Status status = get_all(&u) ? trace_finish(u.trace)
                                : fail(ERROR_FORMAT, "another rank's trace is not what this build keeps");
    memory_free(u.names);
    if (status)
        trace_close(u.trace);
    else
        *trace = u.trace;
    return status;
}
