#include "report/trace.h"

#include "base/memory.h"
#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each name is stored once, in a hash table with open addressing. */
struct TraceStore {
    char **names;
    size_t name_count, name_room; // a power of two, at most half full
    int64_t event_room, memory_room, tensor_room, finding_room;
};

Trace *trace_open(void) {
    Trace *t = memory_allocate(sizeof *t);
    t->store = memory_allocate(sizeof *t->store);
    t->run = (TraceRun){.source = SOURCE_CLOCK,
                        .source_note = "",
                        .device = "",
                        .library = "",
                        .host = "",
                        .device_count = 1,
                        .model = "",
                        .dtype = "",
                        .program = "",
                        .step = "",
                        .window = "",
                        .process_cpu = -1,
                        .system_cpu = -1,
                        .gpu_busy = -1,
                        .launches = -1,
                        .counters = {-1, -1, -1, -1},
                        .counters_note = "",
                        .ranks = 1,
                        .engine = "",
                        .command = "",
                        .version = "",
                        .date = "",
                        .commit = "",
                        .build = "",
                        .driver = "",
                        .device_clocks = "",
                        .host_clocks = ""};
    return t;
}

void trace_close(Trace *t) {
    if (!t) return;
    for (int32_t i = 0; i < t->other_count; i++) trace_close(t->others[i]);
    memory_free(t->others);
    for (size_t i = 0; i < t->store->name_room; i++) memory_free(t->store->names[i]);
    memory_free(t->store->names);
    memory_free(t->store);
    memory_free(t->events);
    memory_free(t->memory);
    memory_free(t->tensors);
    memory_free(t->findings);
    memory_free(t->run.settings);
    memory_free(t->run.step_ms);
    memory_free(t->run.reader_ms);
    memory_free(t->run.traced_ms);
    memory_free(t->run.step_tokens);
    memory_free(t->run.traced_tokens);
    memory_free(t);
}

/* ---- names ---- */

static char **name_slot(char **names, size_t room, const char *text) {
    size_t i = hash_bytes(0, text, strlen(text)) & (room - 1);
    while (names[i] && strcmp(names[i], text) != 0) i = (i + 1) & (room - 1);
    return &names[i];
}

static void grow_names(struct TraceStore *s) {
    size_t room = s->name_room ? 2 * s->name_room : 256;
    char **names = memory_array(room, sizeof *names);
    for (size_t i = 0; i < s->name_room; i++)
        if (s->names[i]) *name_slot(names, room, s->names[i]) = s->names[i];
    memory_free(s->names);
    s->names = names;
    s->name_room = room;
}

const char *trace_name(Trace *trace, const char *text) {
    struct TraceStore *s = trace->store;
    if (!text) return NULL;
    if (2 * s->name_count >= s->name_room) grow_names(s);
    char **slot = name_slot(s->names, s->name_room, text);
    if (!*slot) {
        *slot = memory_text(text);
        s->name_count++;
    }
    return *slot;
}

int64_t trace_name_number(const Trace *trace, const char *name) {
    const struct TraceStore *s = trace->store;
    return name && s->name_room ? name_slot(s->names, s->name_room, name) - s->names : -1;
}

int64_t trace_name_room(const Trace *trace) {
    return (int64_t)trace->store->name_room;
}

const char *trace_name_numbered(const Trace *trace, int64_t number) {
    return number >= 0 && number < trace_name_room(trace) ? trace->store->names[number] : NULL;
}

/* ---- adding ---- */

TraceEvent trace_event(Trace *trace, TraceKind kind, const char *name) {
    return (TraceEvent){.kind = kind,
                        .name = trace_name(trace, name),
                        .thread = -1,
                        .stream = -1,
                        .parent = -1,
                        .launch = -1,
                        .instance = -1,
                        .step = -1,
                        .phase = PHASE_OTHER,
                        .layer = -1,
                        .category = kind > TRACE_KERNEL ? CATEGORY_MEMORY : CATEGORY_OTHER,
                        .launches = kind == TRACE_KERNEL};
}

int64_t trace_add(Trace *t, const TraceEvent *event) {
    t->events = memory_grow(t->events, &t->store->event_room, t->count + 1, sizeof *t->events);
    t->events[t->count] = *event;
    return t->count++;
}

void trace_add_memory(Trace *t, TraceMemory memory) {
    t->memory = memory_grow(t->memory, &t->store->memory_room, t->memory_count + 1, sizeof *t->memory);
    t->memory[t->memory_count++] = memory;
}

void trace_add_tensor(Trace *t, TraceTensor tensor) {
    t->tensors = memory_grow(t->tensors, &t->store->tensor_room, t->tensor_count + 1, sizeof *t->tensors);
    t->tensors[t->tensor_count++] = tensor;
}

void trace_add_finding(Trace *t, const char *name, double found, double allowed, const char *format, ...) {
    char detail[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    t->findings =
        memory_grow(t->findings, &t->store->finding_room, t->finding_count + 1, sizeof *t->findings);
    t->findings[t->finding_count++] =
        (TraceFinding){trace_name(t, name), found <= allowed, found, allowed, trace_name(t, detail)};
}

static void copy_times(double **to, const double *from, int64_t count) {
    memory_free(*to);
    *to = memory_array((size_t)(count ? count : 1), sizeof **to);
    if (from && count) memcpy(*to, from, (size_t)count * sizeof **to);
}

void trace_set_times(Trace *trace, const double *step_ms, const double *reader_ms, int64_t steps,
                     const double *traced_ms, int64_t traced) {
    TraceRun *run = &trace->run;
    copy_times(&run->step_ms, step_ms, steps);
    copy_times(&run->reader_ms, reader_ms, steps);
    copy_times(&run->traced_ms, traced_ms, traced);
    run->step_count = steps;
    run->traced_count = traced;
}

void trace_set_tokens(Trace *trace, const double *step_tokens, const double *traced_tokens) {
    TraceRun *run = &trace->run;
    copy_times(&run->step_tokens, step_tokens, run->step_count);
    copy_times(&run->traced_tokens, traced_tokens, run->traced_count);
}

void trace_set_settings(Trace *trace, char *const *settings, int64_t count) {
    TraceRun *run = &trace->run;
    run->settings = memory_array((size_t)count + 1, sizeof *run->settings);
    run->settings_count = count;
    for (int64_t i = 0; i < count; i++) run->settings[i] = (char *)(uintptr_t)trace_name(trace, settings[i]);
}

const Peaks *trace_limits(const TraceRun *run) {
    return peaks_known(&run->measured) ? &run->measured : &run->sheet;
}

const Peaks *trace_utmost(const TraceRun *run) {
    return peaks_known(&run->sheet) ? &run->sheet : &run->measured;
}

static double tokens_at(const TraceRun *run, const double *tokens, int64_t count, int64_t i) {
    if (tokens && i < count) return tokens[i];
    return (double)run->batch * (double)run->seq * (double)(run->accum > 0 ? run->accum : 1);
}

const char *trace_unit(const TraceRun *run) {
    return run->unit && *run->unit ? run->unit : "tokens";
}

double trace_step_tokens(const TraceRun *run, int64_t i) {
    return tokens_at(run, run->step_tokens, run->step_count, i);
}

double trace_traced_tokens(const TraceRun *run, int64_t i) {
    return tokens_at(run, run->traced_tokens, run->traced_count, i);
}

/* ---- finishing ---- */

/* Insertion sort: samples are nearly in order, and simultaneous ones keep their order. */
static void sort_memory(TraceMemory *memory, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        const TraceMemory sample = memory[i];
        int64_t to = i;
        for (; to > 0 && memory[to - 1].at > sample.at; to--) memory[to] = memory[to - 1];
        memory[to] = sample;
    }
}

static int larger_tensor(const void *a, const void *b) {
    const TraceTensor *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static Status check(const Trace *t, int64_t i) {
    const TraceEvent *e = &t->events[i];
    if (e->parent < -1 || e->parent >= i)
        return fail(ERROR_INTERNAL, "profile: event %lld (%s) comes before the event that encloses it",
                    (long long)i, e->name);
    if (e->end < e->begin)
        return fail(ERROR_INTERNAL, "profile: event %lld (%s) ends before it begins", (long long)i, e->name);
    if (e->launch < -1 || e->launch >= t->count ||
        (e->launch >= 0 && t->events[e->launch].kind != TRACE_RUNTIME))
        return fail(ERROR_INTERNAL, "profile: event %lld (%s) was launched by no call", (long long)i,
                    e->name);
    return OK;
}

/* Inherits from the parent; copies and fills keep their category. */
static void inherit(TraceEvent *e, const TraceEvent *from) {
    e->step = from->step;
    e->phase = from->phase;
    e->layer = from->layer;
    e->operation = from->operation;
    e->pass = from->pass;
    e->form = from->form;
    e->call = from->call;
    if (e->kind == TRACE_KERNEL) e->category = from->category;
    e->arithmetic = from->arithmetic;
    e->source = from->source;
}

Status trace_finish(Trace *t) {
    for (int64_t i = 0; i < t->count; i++) {
        TraceEvent *e = &t->events[i];
        TRY(check(t, i));
        bool device = trace_on_device(e);
        if (device && e->parent >= 0) inherit(e, &t->events[e->parent]);
        e->self = device ? 0 : trace_length(e);
        e->device_self = e->device_total = device ? trace_length(e) : 0;
        e->device_count = 0;
    }
    for (int64_t i = t->count - 1; i >= 0; i--) { // children before their parents
        const TraceEvent *e = &t->events[i];
        if (e->parent < 0) continue;
        TraceEvent *parent = &t->events[e->parent];
        if (!trace_on_device(e) && e->kind != TRACE_RUNTIME) parent->self -= trace_length(e);
        if (trace_on_device(e)) parent->device_self += trace_length(e);
        parent->device_total += e->device_total;
        parent->device_count += e->device_count + trace_on_device(e);
    }
    sort_memory(t->memory, t->memory_count);
    if (t->tensor_count) qsort(t->tensors, (size_t)t->tensor_count, sizeof *t->tensors, larger_tensor);
    return OK;
}

int64_t trace_above(const Trace *trace, int64_t event, TraceKind kind) {
    while (event >= 0 && trace->events[event].kind != kind) event = trace->events[event].parent;
    return event;
}

double trace_steps_ns(const Trace *t) {
    double ns = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP) ns += (double)trace_length(&t->events[i]);
    return ns;
}

double trace_device_ns(const Trace *t) {
    double ns = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (trace_on_device(&t->events[i]) && trace_in_step(&t->events[i]))
            ns += (double)trace_length(&t->events[i]);
    return ns;
}

/* ---- words ---- */

const char *trace_kind_name(int kind) {
    static const char *const names[TRACE_KIND_COUNT + 1] = {
        "step", "phase", "scope", "operation", "primitive", "runtime call", "kernel", "copy", "fill"};
    return names[kind];
}

const char *copy_name(int direction) {
    static const char *const names[COPY_COUNT + 1] = {"host to device", "device to host", "device to device",
                                                      "device to another device", "other"};
    return names[direction];
}

const char *host_memory_name(int host) {
    static const char *const names[HOST_MEMORY_COUNT + 1] = {"-", "pinned", "pageable"};
    return names[host];
}

const char *memory_class_name(int class_) {
    static const char *const names[MEMORY_CLASS_COUNT + 1] = {"parameters", "gradients", "optimizer", "saved",
                                                              "scratch",    "cache",     "workspace"};
    return names[class_];
}

const char *source_name(TraceSource source) {
    static const char *const names[] = {"CUPTI activity records", "CUDA events", "CPU clock"};
    return names[source];
}

void operation_label(const TraceEvent *e, char text[LABEL_BYTES]) {
    if (!e->operation)
        snprintf(text, LABEL_BYTES, "-");
    else
        snprintf(text, LABEL_BYTES, "%s %s", e->operation, pass_name(e->pass));
}
