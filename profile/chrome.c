#include "profile/chrome.h"

#include "base/gzip.h"
#include "base/memory.h"
#include "profile/kernel_name.h"
#include "profile/spans.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Process ids of the file: a row of tracks for each. */
enum { HOST = 1, DEVICE = 2 };

/* Tracks of a stream: the operations, and below them what ran; of each as many lanes as overlap. */
typedef struct {
    Lanes operations, kernels;
    int operation_lanes, kernel_lanes; // in use
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
    snprintf(text, sizeof text, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
    json_write_key(w, key);
    json_write_json(w, text);
}

/* Begins an event; the caller adds the rest and closes the object. */
static void begin_event(JsonWriter *w, const char *phase, int process, int64_t track) {
    json_write_line(w, 0, true);
    json_write_open(w, '{');
    json_member_text(w, "ph", phase);
    json_member_integer(w, "pid", process);
    json_member_integer(w, "tid", track);
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

static void name_host(JsonWriter *w, const Trace *t) {
    int32_t threads = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].thread >= threads) threads = t->events[i].thread + 1;
    char name[256];
    snprintf(name, sizeof name, "host: %s", t->run.host);
    name_track(w, "process_name", HOST, 0, name);
    for (int32_t i = 0; i < threads; i++) {
        snprintf(name, sizeof name, i ? "thread %d" : "main thread", i);
        name_track(w, "thread_name", HOST, i, name);
    }
}

static void name_device(JsonWriter *w, const Trace *t, const Stream *streams, int32_t count) {
    static const char *const early[] = {"", ", that begin early", ", earlier", ", earliest"};
    char name[256];
    if (!count) return;
    snprintf(name, sizeof name, "device: %s", t->run.device);
    name_track(w, "process_name", DEVICE, 0, name);
    for (int32_t i = 0; i < count; i++) {
        for (int lane = 0; lane < streams[i].operation_lanes; lane++) {
            snprintf(name, sizeof name, "stream %d: operations%s", i, early[lane]);
            name_track(w, "thread_name", DEVICE, operation_track(i, lane), name);
        }
        for (int lane = 0; lane < streams[i].kernel_lanes; lane++) {
            snprintf(name, sizeof name, "stream %d: kernels and copies%s", i, early[lane]);
            name_track(w, "thread_name", DEVICE, kernel_track(i, lane), name);
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
    if (e->in_operation) {
        json_member_text(w, "operation", operation_name(e->operation));
        json_member_text(w, "pass", pass_name(e->pass));
        json_member_text(w, "form", form_name(e->form));
        if (e->call) json_member_text(w, "place", e->call);
        json_member_text(w, "category", category_name(e->category));
    }
    if (e->source) json_member_text(w, "source", e->source);
    if (e->kind == TRACE_OPERATION) {
        json_member_number(w, "GFLOP", 1e-9 * e->work.flops);
        json_member_number(w, "least MB", 1e-6 * e->work.bytes);
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

/* An arrow: its two ends bind to the slices that are open on their tracks at their times. */
static void write_arrow(JsonWriter *w, const TraceEvent *call, int64_t track, int64_t begin, int64_t id) {
    for (int last = 0; last < 2; last++) {
        if (last)
            begin_event(w, "f", DEVICE, track);
        else
            begin_event(w, "s", HOST, call->thread);
        json_member_text(w, "cat", "launch");
        json_member_text(w, "name", "launch");
        json_member_integer(w, "id", id);
        write_key_time(w, "ts", last ? begin : call->begin);
        if (last) json_member_text(w, "bp", "e");
        json_write_close(w, '}');
    }
}

/* ---- counters ---- */

static void write_counter(JsonWriter *w, const char *name, int64_t at) {
    begin_event(w, "C", HOST, 0);
    json_member_text(w, "name", name);
    write_key_time(w, "ts", at);
    json_member_open(w, "args", '{');
}

static void end_counter(JsonWriter *w) {
    json_write_close(w, '}');
    json_write_close(w, '}');
}

/* All classes at each change: the viewers stack them. Of the changes at one time only the last is shown. */
static void write_memory(JsonWriter *w, const Trace *t) {
    int64_t bytes[MEMORY_CLASS_COUNT] = {0};
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        bytes[m->class_] = m->bytes;
        if (i + 1 < t->memory_count && t->memory[i + 1].at == m->at) continue;
        write_counter(w, "memory, MiB", m->at);
        for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
            json_member_number(w, memory_class_name((MemoryClass)c), (double)bytes[c] / 1048576);
        end_counter(w);
    }
}

static void write_speed(JsonWriter *w, const Trace *t) {
    int64_t end = -1, step = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_STEP) continue;
        double tokens = trace_traced_tokens(&t->run, step++);
        if (trace_length(e) <= 0) continue;
        write_counter(w, "tokens per second", e->begin);
        json_member_number(w, "tokens per second", 1e9 * tokens / (double)trace_length(e));
        end_counter(w);
        end = e->end;
    }
    if (end < 0) return;
    write_counter(w, "tokens per second", end);
    json_member_number(w, "tokens per second", 0);
    end_counter(w);
}

/* ---- the file ---- */

static void write_about(JsonWriter *w, const TraceRun *r) {
    json_member_open(w, "otherData", '{');
    json_member_text(w, "program", r->program);
    json_member_text(w, "model", r->model);
    json_member_text(w, "dtype", r->dtype);
    json_member_text(w, "device", r->device);
    json_member_text(w, "library", r->library);
    json_member_text(w, "source", source_name(r->source));
    json_member_text(w, "window", r->window);
    json_member_integer(w, "batch", r->batch);
    json_member_integer(w, "seq", r->seq);
    json_write_close(w, '}');
}

static void write_on_device(JsonWriter *w, const Trace *t, int64_t index, Stream *streams) {
    const TraceEvent *e = &t->events[index];
    Stream *stream = &streams[e->stream];
    int64_t begin = e->begin;
    int lane = lanes_place(&stream->kernels, &begin, e->end);
    if (lane >= stream->kernel_lanes) stream->kernel_lanes = lane + 1;
    write_slice(w, e, DEVICE, kernel_track(e->stream, lane), begin, e->end);
    if (e->launch >= 0) write_arrow(w, &t->events[e->launch], kernel_track(e->stream, lane), begin, index);
}

static void write_on_host(JsonWriter *w, const TraceEvent *e, Span span, Stream *streams) {
    write_slice(w, e, HOST, e->thread, e->begin, e->end);
    if (span.stream < 0) return;
    Stream *stream = &streams[span.stream];
    int lane = lanes_place(&stream->operations, &span.begin, span.end);
    if (lane >= stream->operation_lanes) stream->operation_lanes = lane + 1;
    write_slice(w, e, DEVICE, operation_track(span.stream, lane), span.begin, span.end);
}

static void write_events(JsonWriter *w, const Trace *t, const Span *spans, Stream *streams, int32_t count) {
    json_member_open(w, "traceEvents", '[');
    name_host(w, t);
    for (int64_t i = 0; i < t->count; i++) {
        if (trace_on_device(&t->events[i]))
            write_on_device(w, t, i, streams);
        else
            write_on_host(w, &t->events[i], spans[i], streams);
    }
    name_device(w, t, streams, count);
    write_memory(w, t);
    write_speed(w, t);
    json_write_close(w, ']');
}

void chrome_render(const Trace *t, JsonWriter *w) {
    int32_t count = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].stream >= count) count = t->events[i].stream + 1;
    Stream *streams = memory_array((size_t)count + 1, sizeof *streams);
    Span *spans = spans_make(t);
    json_write_open(w, '{');
    json_member_text(w, "displayTimeUnit", "ms");
    write_about(w, &t->run);
    write_events(w, t, spans, streams, count);
    json_write_close(w, '}');
    memory_free(spans);
    memory_free(streams);
}

Status chrome_write(const Trace *trace, const char *path) {
    JsonWriter writer = {0};
    chrome_render(trace, &writer);
    Status status = gzip_write(path, writer.text, (int64_t)writer.length);
    json_writer_free(&writer);
    return status;
}
