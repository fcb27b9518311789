#include "report/chrome.h"

#include "base/gzip.h"
#include "base/memory.h"
#include "report/kernel_name.h"
#include "report/provenance.h"
#include "report/spans.h"
#include "report/collectives.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Process ids in the file; each is a group of tracks. Rank r uses these plus twice r. */
enum { HOST = 1, DEVICE = 2, IDS = 2 };

static int process_of(int base, const TraceRun *run) {
    return base + IDS * (int)run->rank;
}

/* Tracks of a stream: operations, and below them kernels; each has as many lanes as overlap. */
typedef struct {
    Lanes operations, kernels;
    int operation_lanes, kernel_lanes; // lanes in use
} Stream;

static int64_t operation_track(int32_t stream, int lane) {
    return 2 * LANES * (int64_t)stream + lane;
}

static int64_t kernel_track(int32_t stream, int lane) {
    return operation_track(stream, LANES) + lane;
}

/* Nanoseconds as microseconds, exactly: a double would round long runs' times. */
static void write_key_time(JsonWriter *w, const char *key, int64_t ns) {
    char text[48];
    const int64_t length = ns < 0 ? -ns : ns;
    snprintf(text, sizeof text, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", length / 1000, (int)(length % 1000));
    json_write_key(w, key);
    json_write_json(w, text);
}

/* Viewers treat a track numbered 0, or like its process, as the main thread, and merge them. */
enum { FIRST_TRACK = 10000 };

/* Begins an event; the caller adds the rest and closes the object. */
static void begin_event(JsonWriter *w, const char *phase, int process, int64_t track) {
    json_write_line(w, 0, true);
    json_write_open(w, '{');
    json_member_text(w, "ph", phase);
    json_member_integer(w, "pid", process);
    json_member_integer(w, "tid", FIRST_TRACK + track);
}

/* ---- names of tracks ---- */

static void name_track(JsonWriter *w, const char *what, int process, int64_t track, const char *name) {
    begin_event(w, "M", process, track);
    json_member_text(w, "name", what);
    json_member_open(w, "args", '{');
    json_member_text(w, "name", name);
    json_write_close(w, '}');
    json_write_close(w, '}');
}

/* "host: NAME", or with several ranks "rank 1, host: NAME". */
static void name_process(JsonWriter *w, const Trace *t, const char *what, int base, const char *name) {
    char text[320];
    if (t->run.ranks > 1)
        snprintf(text, sizeof text, "rank %" PRId64 ", %s: %s", t->run.rank, what, name);
    else
        snprintf(text, sizeof text, "%s: %s", what, name);
    name_track(w, "process_name", process_of(base, &t->run), 0, text);
}

static void name_host(JsonWriter *w, const Trace *t) {
    enum { THREADS = 2 * TRACE_READERS };
    bool has[THREADS] = {false};
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].thread >= 0 && t->events[i].thread < THREADS) has[t->events[i].thread] = true;
    char name[32];
    name_process(w, t, "host", HOST, t->run.host);
    for (int32_t i = 0; i < THREADS; i++) {
        if (!has[i]) continue;
        int reader = i - TRACE_READERS;
        snprintf(name, sizeof name,
                 !i           ? "main thread"
                 : reader < 0 ? "thread %d"
                              : "loader %d",
                 reader < 0 ? i : reader);
        name_track(w, "thread_name", process_of(HOST, &t->run), i, name);
    }
}

static void name_device(JsonWriter *w, const Trace *t, const Stream *streams, int32_t count) {
    static const char *const early[] = {"", ", that begin early", ", earlier", ", earliest"};
    char name[256];
    if (!count) return;
    const int process = process_of(DEVICE, &t->run);
    name_process(w, t, "device", DEVICE, t->run.device);
    for (int32_t i = 0; i < count; i++) {
        for (int lane = 0; lane < streams[i].operation_lanes; lane++) {
            snprintf(name, sizeof name, "stream %d: operations%s", i, early[lane]);
            name_track(w, "thread_name", process, operation_track(i, lane), name);
        }
        for (int lane = 0; lane < streams[i].kernel_lanes; lane++) {
            snprintf(name, sizeof name, "stream %d: kernels and copies%s", i, early[lane]);
            name_track(w, "thread_name", process, kernel_track(i, lane), name);
        }
    }
}

/* ---- events ---- */

static void write_kernel(JsonWriter *w, const TraceEvent *e) {
    const KernelShape *k = &e->kernel;
    char text[KERNEL_NAME_BYTES];
    kernel_decode(e->name, text);
    if (*text) json_member_text(w, "decoded", text);
    if (strchr(e->name, '(')) json_member_text(w, "full name", e->name);
    if (e->queued && e->submitted) {
        json_member_number(w, "in the queue, us", fmax(0, 1e-3 * (double)(e->submitted - e->queued)));
        json_member_number(w, "from submission to begin, us",
                           fmax(0, 1e-3 * (double)(e->begin - e->submitted)));
    }
    if (!k->block[0]) return;
    snprintf(text, sizeof text, "%d x %d x %d", k->grid[0], k->grid[1], k->grid[2]);
    json_member_text(w, "grid", text);
    snprintf(text, sizeof text, "%d x %d x %d", k->block[0], k->block[1], k->block[2]);
    json_member_text(w, "block", text);
    json_member_integer(w, "registers", k->registers);
    json_member_integer(w, "shared bytes", (int64_t)k->shared_static + k->shared_dynamic);
    json_member_number(w, "occupancy", k->occupancy);
}

static void write_arguments(JsonWriter *w, const TraceEvent *e) {
    json_member_open(w, "args", '{');
    if (e->step >= 0) json_member_integer(w, "step", e->step);
    json_member_text(w, "phase", phase_name(e->phase));
    if (e->layer >= 0) json_member_integer(w, "layer", e->layer);
    if (e->operation) {
        json_member_text(w, "operation", e->operation);
        json_member_text(w, "pass", pass_name(e->pass));
        json_member_text(w, "form", form_name(e->form));
        if (e->call) json_member_text(w, "place", e->call);
        json_member_text(w, "category", category_name(e->category));
    }
    if (e->source) json_member_text(w, "source", e->source);
    if (e->shapes) json_member_text(w, "shapes", e->shapes);
    if (e->strides) json_member_text(w, "strides", e->strides);
    if (e->kind == TRACE_OPERATION) {
        json_member_number(w, "GFLOP", 1e-9 * e->work.flops);
        json_member_number(w, "least MB", 1e-6 * e->work.bytes);
        if (e->work.sent > 0) json_member_number(w, "sent MB", 1e-6 * e->work.sent);
        json_member_number(w, "device us", 1e-3 * (double)e->device_total);
    }
    if (e->kind == TRACE_KERNEL) write_kernel(w, e);
    if (e->kind == TRACE_COPY) json_member_text(w, "direction", copy_name(e->copy.direction));
    if (e->kind == TRACE_COPY) json_member_text(w, "host memory", host_memory_name(e->copy.host));
    if (e->kind == TRACE_COPY || e->kind == TRACE_FILL) json_member_integer(w, "bytes", e->copy.bytes);
    json_write_close(w, '}');
}

static void write_slice(JsonWriter *w, const TraceEvent *e, int process, int64_t track, int64_t begin,
                        int64_t end) {
    begin_event(w, "X", process, track);
    json_member_text(w, "cat", trace_kind_name(e->kind));
    char label[KERNEL_NAME_BYTES];
    kernel_label(e->kind == TRACE_OPERATION && e->call ? e->call : e->name, label);
    json_member_text(w, "name", label);
    write_key_time(w, "ts", begin);
    write_key_time(w, "dur", end - begin);
    write_arguments(w, e);
    json_write_close(w, '}');
}

/* A point on a track. */
typedef struct {
    int process;
    int64_t track, at;
} Point;

/* An arrow: each end binds to the slice that is open on its track at its time. Both ends share a number,
 * because viewers accept no other name; `arrows` counts those of the file. */
static void write_arrow(JsonWriter *w, int64_t *arrows, const char *name, Point from, Point to) {
    ++*arrows;
    for (int last = 0; last < 2; last++) {
        const Point *p = last ? &to : &from;
        begin_event(w, last ? "f" : "s", p->process, p->track);
        json_member_text(w, "cat", name);
        json_member_text(w, "name", name);
        json_member_integer(w, "id", *arrows);
        write_key_time(w, "ts", p->at);
        if (last) json_member_text(w, "bp", "e");
        json_write_close(w, '}');
    }
}

/* ---- counters ---- */

static void write_counter(JsonWriter *w, const TraceRun *run, const char *name, int64_t at) {
    begin_event(w, "C", process_of(HOST, run), 0);
    json_member_text(w, "name", name);
    write_key_time(w, "ts", at);
    json_member_open(w, "args", '{');
}

static void end_counter(JsonWriter *w) {
    json_write_close(w, '}');
    json_write_close(w, '}');
}

/* Writes all classes at each change; viewers stack them. Only the last of simultaneous changes is written. */
static void write_memory(JsonWriter *w, const Trace *t) {
    int64_t bytes[MEMORY_CLASS_COUNT] = {0};
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        bytes[m->class_] = m->bytes;
        if (i + 1 < t->memory_count && t->memory[i + 1].at == m->at) continue;
        write_counter(w, &t->run, "memory, MiB", m->at);
        for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
            json_member_number(w, memory_class_name(c), (double)bytes[c] / 1048576);
        end_counter(w);
    }
}

static void write_speed(JsonWriter *w, const Trace *t) {
    int64_t end = -1, step = 0;
    char name[40];
    snprintf(name, sizeof name, "%s per second", trace_unit(&t->run));
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_STEP) continue;
        double tokens = trace_traced_tokens(&t->run, step++);
        if (trace_length(e) <= 0) continue;
        write_counter(w, &t->run, name, e->begin);
        json_member_number(w, name, 1e9 * tokens / (double)trace_length(e));
        end_counter(w);
        end = e->end;
    }
    if (end < 0) return;
    write_counter(w, &t->run, name, end);
    json_member_number(w, name, 0);
    end_counter(w);
}

/* ---- the file ---- */

static void write_about(JsonWriter *w, const TraceRun *r) {
    Table all = table_provenance(r);
    json_member_open(w, "otherData", '{');
    for (int64_t i = 0; i < all.rows; i++)
        json_member_text(w, all.cells[2 * i].text, all.cells[2 * i + 1].text);
    json_member_integer(w, "left_out", r->left_out);
    table_free(&all);
    json_member_text(w, "source", source_name(r->source));
    json_member_text(w, "window", r->window);
    json_write_close(w, '}');
}

/* State for writing a rank's events. */
typedef struct {
    JsonWriter *w;
    int64_t *arrows;
    const Trace *trace;
    Span *spans;
    Stream *streams; // (count)
    int32_t count;
    Point *collectives; // (room) the position of each collective
    int64_t collective_count, room;
} Rank;

static void note_collective(Rank *r, const TraceEvent *e, Point at) {
    if (e->kind != TRACE_OPERATION || e->category != CATEGORY_COMMUNICATION || !trace_in_step(e)) return;
    r->collectives = memory_grow(r->collectives, &r->room, r->collective_count + 1, sizeof at);
    r->collectives[r->collective_count++] = at;
}

/* On the CPU device events are on the main thread, so they are written only if they are not already a
 * primitive or an operation. */
static bool is_repeated(const TraceEvent *e) {
    char label[LABEL_BYTES];
    operation_label(e, label);
    return e->kind == TRACE_KERNEL && strncmp(e->name, label, strlen(label)) == 0;
}

static void write_on_cpu(Rank *r, int64_t index) {
    const TraceEvent *e = &r->trace->events[index];
    const int process = process_of(HOST, &r->trace->run);
    if (trace_on_device(e) && is_repeated(e)) return;
    const Point at = {process, e->thread >= 0 ? e->thread : 0, e->begin};
    write_slice(r->w, e, at.process, at.track, e->begin, e->end);
    note_collective(r, e, at);
    if (e->kind != TRACE_PRIMITIVE || e->parent < 0) return;
    write_arrow(r->w, r->arrows, "part", (Point){process, at.track, r->trace->events[e->parent].begin}, at);
}

static void write_on_device(Rank *r, int64_t index) {
    const TraceEvent *e = &r->trace->events[index];
    Stream *stream = &r->streams[e->stream];
    int64_t begin = e->begin;
    int lane = lanes_place(&stream->kernels, &begin, e->end);
    if (lane >= stream->kernel_lanes) stream->kernel_lanes = lane + 1;
    const Point to = {process_of(DEVICE, &r->trace->run), kernel_track(e->stream, lane), begin};
    write_slice(r->w, e, to.process, to.track, begin, e->end);
    if (e->launch < 0) return;
    const TraceEvent *call = &r->trace->events[e->launch];
    const Point from = {process_of(HOST, &r->trace->run), call->thread, call->begin};
    write_arrow(r->w, r->arrows, "launch", from, to);
}

static void write_on_host(Rank *r, int64_t index) {
    const TraceEvent *e = &r->trace->events[index];
    Point at = {process_of(HOST, &r->trace->run), e->thread, e->begin};
    write_slice(r->w, e, at.process, at.track, e->begin, e->end);
    Span span = r->spans[index];
    if (span.stream >= 0) {
        Stream *stream = &r->streams[span.stream];
        int lane = lanes_place(&stream->operations, &span.begin, span.end);
        if (lane >= stream->operation_lanes) stream->operation_lanes = lane + 1;
        at = (Point){process_of(DEVICE, &r->trace->run), operation_track(span.stream, lane), span.begin};
        write_slice(r->w, e, at.process, at.track, span.begin, span.end);
    }
    note_collective(r, e, at);
}

static void write_rank(Rank *r) {
    const Trace *t = r->trace;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].stream >= r->count) r->count = t->events[i].stream + 1;
    r->streams = memory_array((size_t)r->count + 1, sizeof *r->streams);
    r->spans = spans_make(t);
    name_host(r->w, t);
    for (int64_t i = 0; i < t->count; i++) {
        if (t->run.source == SOURCE_CLOCK)
            write_on_cpu(r, i);
        else if (trace_on_device(&t->events[i]))
            write_on_device(r, i);
        else
            write_on_host(r, i);
    }
    if (t->run.source != SOURCE_CLOCK) name_device(r->w, t, r->streams, r->count);
    write_memory(r->w, t);
    write_speed(r->w, t);
    memory_free(r->spans);
    memory_free(r->streams);
}

/* The collective that sums what collective `i` scattered: the n-th of its step matches the n-th; -1: none. */
static int64_t sums_of(const Collectives *all, int64_t i) {
    const Collected *c = &all->list[i];
    int64_t before = 0, k = i;
    if (c->kind != TRAFFIC_SCATTER) return -1;
    while (k > 0 && all->list[k - 1].step == c->step) before += all->list[--k].kind == TRAFFIC_SCATTER;
    for (; k < all->count && all->list[k].step == c->step; k++)
        if (all->list[k].kind == TRAFFIC_SUM && before-- == 0) return k;
    return -1;
}

typedef struct {
    int from, to;       // numbers of ranks
    int64_t begin, end; // range of collectives
} Arrow;

/* Clocks may be slightly wrong: an arrow must end within its target. */
static void write_collective(const Collectives *all, const Rank *ranks, Arrow a) {
    const Span *peer = &all->list[a.end].spans[a.to];
    Point from = ranks[a.from].collectives[a.begin], to = ranks[a.to].collectives[a.end];
    to.at = from.at < peer->end ? from.at : peer->end - 1;
    if (to.at < peer->begin) to.at = peer->begin;
    write_arrow(ranks->w, ranks->arrows, "collective", from, to);
}

/* Arrows from the last rank, for which the others waited, to each of them; and from each rank that has
 * scattered to the others' sums. */
static void write_collectives(const Trace *t, const Rank *ranks) {
    Collectives all = collectives_of(t);
    for (int64_t i = 0; i < all.count; i++) {
        const Collected *c = &all.list[i];
        const int64_t sums = sums_of(&all, i), at = c->waits ? i : sums;
        for (int from = 0; from < all.ranks && at >= 0; from++)
            for (int to = 0; to < all.ranks && (!c->waits || from == c->last); to++)
                if (to != from) write_collective(&all, ranks, (Arrow){from, to, i, at});
    }
    collectives_free(&all);
}

void chrome_render(const Trace *t, JsonWriter *w) {
    const int32_t count = 1 + t->other_count;
    int64_t arrows = 0;
    OWNED Rank *ranks = memory_array((size_t)count, sizeof *ranks);
    json_write_open(w, '{');
    json_member_text(w, "displayTimeUnit", "ms");
    write_about(w, &t->run);
    json_member_open(w, "traceEvents", '[');
    for (int32_t rank = 0; rank < count; rank++) {
        ranks[rank] = (Rank){.w = w, .arrows = &arrows, .trace = trace_of_rank(t, rank)};
        write_rank(&ranks[rank]);
    }
    if (count > 1) write_collectives(t, ranks);
    json_write_close(w, ']');
    json_write_close(w, '}');
    for (int32_t rank = 0; rank < count; rank++) memory_free(ranks[rank].collectives);
}

Status chrome_write(const Trace *trace, const char *path) {
    CLOSED_BY(json_writer_free) JsonWriter writer = {0};
    chrome_render(trace, &writer);
    return gzip_write(path, writer.text, (int64_t)writer.length);
}
