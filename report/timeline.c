#include "report/timeline.h"

#include "base/memory.h"
#include "report/kernel_name.h"
#include "report/spans.h"

/* Maximum events: a page with more is slow and unreadable. */
enum { EVENTS_MOST = 20000, DEPTH_MOST = 12 };

typedef struct {
    const Trace *trace;
    JsonWriter *writer;
    int64_t step, origin; // number and beginning of the drawn step
    const char **names;   // (name_count) distinct
    int64_t name_count, written;
    Span *spans;
} Timeline;

/* The last recorded step, which is the warmest. */
static int64_t last_step(const Trace *t, int64_t *origin) {
    int64_t step = -1;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP && t->events[i].step >= step) {
            step = t->events[i].step;
            *origin = t->events[i].begin;
        }
    return step;
}

static const char *shown_name(const TraceEvent *e) {
    return e->kind == TRACE_OPERATION && e->call ? e->call : e->name;
}

/* Equal names of a trace are the same pointer; a step has a few hundred at most. */
static int64_t name_index(Timeline *t, const char *name) {
    for (int64_t i = 0; i < t->name_count; i++)
        if (t->names[i] == name) return i;
    t->names[t->name_count] = name;
    return t->name_count++;
}

static const char *shown_category(const TraceEvent *e) {
    return category_name(e->category);
}

/* [name, begin, length, category, depth], in microseconds from the step's begin */
static void write_event(Timeline *t, const TraceEvent *e, int64_t begin, int64_t end, int depth) {
    JsonWriter *w = t->writer;
    if (t->written == EVENTS_MOST) return;
    t->written++;
    json_write_open(w, '[');
    json_write_integer(w, name_index(t, shown_name(e)));
    json_write_number(w, 1e-3 * (double)(begin - t->origin));
    json_write_number(w, 1e-3 * (double)(end - begin));
    json_write_text(w, shown_category(e));
    json_write_integer(w, depth);
    json_write_close(w, ']');
}

/* Steps, phases, scopes and operations of the main thread, each below its parent. */
static void write_host(Timeline *t) {
    for (int64_t i = 0; i < t->trace->count; i++) {
        const TraceEvent *e = &t->trace->events[i];
        if (e->step != t->step || e->kind > TRACE_OPERATION || e->thread != 0) continue;
        int depth = 0;
        for (int64_t p = e->parent; p >= 0 && depth < DEPTH_MOST; p = t->trace->events[p].parent) depth++;
        write_event(t, e, e->begin, e->end, depth);
    }
}

/* Overlapping events, also of different streams, are placed below each other. */
static void write_placed(Timeline *t, const TraceEvent *e, int64_t begin, int64_t end, Lanes *lanes) {
    int lane = lanes_place(lanes, &begin, end);
    write_event(t, e, begin, end, lane);
}

static void write_operations(Timeline *t) {
    Lanes lanes = {0};
    for (int64_t i = 0; i < t->trace->count; i++)
        if (t->trace->events[i].step == t->step && t->spans[i].stream >= 0)
            write_placed(t, &t->trace->events[i], t->spans[i].begin, t->spans[i].end, &lanes);
}

static void write_device(Timeline *t) {
    Lanes lanes = {0};
    for (int64_t i = 0; i < t->trace->count; i++) {
        const TraceEvent *e = &t->trace->events[i];
        if (e->step == t->step && trace_on_device(e)) write_placed(t, e, e->begin, e->end, &lanes);
    }
}

static void write_track(Timeline *t, const char *name, void (*events)(Timeline *)) {
    json_write_line(t->writer, 4, true);
    json_write_open(t->writer, '{');
    json_member_text(t->writer, "name", name);
    json_member_open(t->writer, "events", '[');
    t->written = 0;
    events(t);
    json_write_close(t->writer, ']');
    json_write_close(t->writer, '}');
}

static void write_tracks(Timeline *t) {
    bool cpu = t->trace->run.source == SOURCE_CLOCK;
    json_member_open(t->writer, "tracks", '[');
    write_track(t, "host", write_host);
    if (!cpu) write_track(t, "device: operations", write_operations);
    write_track(t, cpu ? "primitives" : "device: kernels", write_device);
    json_write_close(t->writer, ']');
    json_member_open(t->writer, "names", '[');
    for (int64_t i = 0; i < t->name_count; i++) {
        char label[KERNEL_NAME_BYTES];
        kernel_label(t->names[i], label);
        json_write_text(t->writer, label);
    }
    json_write_close(t->writer, ']');
}

void timeline_write(const Trace *trace, JsonWriter *writer) {
    Timeline t = {.trace = trace, .writer = writer, .spans = spans_make(trace)};
    t.step = last_step(trace, &t.origin);
    t.names = memory_array((size_t)trace->count + 1, sizeof *t.names);
    json_write_open(writer, '{');
    json_member_integer(writer, "step", t.step);
    write_tracks(&t);
    json_write_close(writer, '}');
    memory_free(t.spans);
    memory_free(t.names);
}
