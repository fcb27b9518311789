#include "kernels/record.h"

#include "base/memory.h"

enum { DEPTH_LIMIT = 16, IDLE_MS = 2, ROOM_AT_FIRST = 1 << 13 };

typedef struct {
    Event *start, *end;
} Span;

struct Recorder {
    Device *device;
    RecorderOptions options;
    double born;     // device_clock() at creation; with the address it identifies the recorder
    int64_t capture; // the record whose graph is being captured
    int64_t capture_memory;
    int64_t count, dropped;
    Record *records;
    int64_t room;
    Span *spans;     // parallel to the records, if events time them
    int64_t created; // spans with created events; reused after a clear
    int64_t span_room;
    int64_t open[DEPTH_LIMIT]; // stack of open records; -1: dropped
    int depth;
    RecordMemory *memory;
    int64_t memory_count, memory_room;
    size_t used[ARENA_COUNT]; // used bytes of each arena at the last note
    RecordReading *readings;
    int64_t reading_count, reading_room;
    Status failure;
};

Recorder *recorder_open(Device *device, const RecorderOptions *options) {
    Recorder *r = memory_allocate(sizeof *r);
    *r = (Recorder){.device = device, .options = *options, .born = device_clock()};
    if (!r->options.limit) r->options.limit = 1000000;
    /* Zeroed here, so that the system maps the pages before a step is recorded. */
    r->room = r->options.limit < ROOM_AT_FIRST ? r->options.limit : ROOM_AT_FIRST;
    r->records = memory_array((size_t)r->room, sizeof *r->records);
    r->memory_room = options->whole ? r->room : 0;
    r->memory = memory_array((size_t)r->memory_room, sizeof *r->memory);
    return r;
}

void recorder_close(Recorder *r) {
    if (!r) return;
    for (int64_t i = 0; i < r->created; i++) {
        r->device->event_free(r->device, r->spans[i].start);
        r->device->event_free(r->device, r->spans[i].end);
    }
    memory_free(r->spans);
    memory_free(r->records);
    memory_free(r->memory);
    memory_free(r->readings);
    status_free(r->failure);
    memory_free(r);
}

bool recorder_wants(const Recorder *r, RecordKind kind) {
    return kind == RECORD_PRIMITIVE ? r->options.primitives : kind == RECORD_OPERATION || r->options.whole;
}

/* A CPU needs no events: its work is done when the host goes on. */
static bool uses_events(const Recorder *r) {
    return r->options.timed && r->device->backend == BACKEND_CUDA;
}

static Status make_room(Recorder *r) {
    r->records = memory_grow(r->records, &r->room, r->count + 1, sizeof *r->records);
    if (!uses_events(r) || r->count < r->created) return OK;
    r->spans = memory_grow(r->spans, &r->span_room, r->created + 1, sizeof *r->spans);
    Span *span = &r->spans[r->created];
    TRY(r->device->event_create(r->device, &span->start));
    Status status = r->device->event_create(r->device, &span->end);
    if (status) {
        r->device->event_free(r->device, span->start);
        return status;
    }
    r->created++;
    return OK;
}

static Status begin(Recorder *r, const Record *what) {
    int64_t index = -1;
    if (r->options.isolate && what->kind == RECORD_PRIMITIVE) TRY(device_rest(r->device, IDLE_MS));
    if (r->count >= r->options.limit) {
        r->dropped++;
    } else {
        TRY(make_room(r));
        index = r->count++;
        Record *record = &r->records[index];
        *record = *what;
        record->parent = r->depth ? r->open[r->depth - 1] : -1;
        record->launches = -r->device->launches;
        record->cpu_start = device_clock();
        if (uses_events(r)) TRY(r->device->event_record(r->device, r->spans[index].start));
        if (r->options.mark) r->options.mark(r->options.marker, index);
    }
    r->open[r->depth++] = index;
    return OK;
}

static Status end(Recorder *r) {
    int64_t index = r->open[--r->depth];
    if (index < 0) return OK;
    Record *record = &r->records[index];
    if (r->options.mark) r->options.unmark(r->options.marker);
    if (uses_events(r)) TRY(r->device->event_record(r->device, r->spans[index].end));
    record->cpu_end = device_clock();
    record->launches += r->device->launches;
    return OK;
}

void record_begin(Recorder *r, const Record *what) {
    if (r->failure) return;
    r->failure = r->depth < DEPTH_LIMIT ? begin(r, what) : fail(ERROR_INTERNAL, "records nest too deeply");
}

void record_transfer(Recorder *r, RecordKind kind, size_t bytes) {
    static const char *const names[] = {[RECORD_UPLOAD] = "upload",
                                        [RECORD_DOWNLOAD] = "download",
                                        [RECORD_COPY] = "copy",
                                        [RECORD_FILL] = "fill"};
    int64_t parent = r->depth ? r->open[r->depth - 1] : -1;
    Record record = {.layer = -1, .call = "", .step = -1};
    if (parent >= 0) record = r->records[parent];
    record.kind = kind;
    record.name = names[kind];
    record.work = (Work){.bytes = (double)bytes};
    record_begin(r, &record);
}

void record_end(Recorder *r) {
    if (r->failure) return;
    r->failure = r->depth > 0 ? end(r) : fail(ERROR_INTERNAL, "a record ends that never began");
}

/* The innermost open record; NULL if there is none or it was dropped. */
static Record *innermost(Recorder *r) {
    int64_t open = r->depth ? r->open[r->depth - 1] : -1;
    return open >= 0 ? &r->records[open] : NULL;
}

void record_product(Recorder *r, const RecordInput factors[2], const void *result) {
    Record *record = innermost(r);
    if (!record) return;
    record->inputs[0] = factors[0];
    record->inputs[1] = factors[1];
    record->fills[0] = result;
}

void record_call(Recorder *r, const Call *call) {
    Record *record = innermost(r);
    if (!record || !r->options.whole) return;
    for (int i = 0; i < CALL_OUTPUTS; i++) record->fills[i] = call->outputs[i].tensor.data;
    RecordInput *inputs = record->inputs;
    for (int i = 0; i < RECORD_INPUTS; i++) {
        const Tensor *tensor = &call->inputs[i];
        const Shape *shape = &tensor->shape;
        inputs[i].shape = *shape;
        for (int axis = shape->rank - 1; axis >= 0; axis--)
            inputs[i].stride[axis] = axis == shape->rank - 1 ? 1
                                     : axis == shape->rank - 2
                                         ? tensor->stride
                                         : inputs[i].stride[axis + 1] * shape->d[axis + 1];
    }
}

static void add_memory(Recorder *r, const RecordMemory *sample) {
    if (r->memory_count >= r->options.limit) return;
    r->memory = memory_grow(r->memory, &r->memory_room, r->memory_count + 1, sizeof *r->memory);
    r->memory[r->memory_count++] = *sample;
}

void record_memory(Recorder *r, const Arena arenas[ARENA_COUNT], const Tensor *taken) {
    if (!r->options.whole) return;
    for (int i = 0; i < ARENA_COUNT && !r->failure; i++) {
        bool first = r->memory_count <= i; // note every arena the first time
        if (!first && arenas[i].used == r->used[i]) continue;
        RecordMemory sample = {.at = device_clock(),
                               .arena = (ArenaKind)i,
                               .used = arenas[i].used,
                               .record = r->depth ? r->open[r->depth - 1] : -1};
        const size_t begin = arenas[i].count ? arenas[i].entries[arenas[i].count - 1].offset : 0;
        if (!first && taken && begin < r->used[i]) { // memory was released before this tensor was taken
            sample.used = begin;
            add_memory(r, &sample);
            sample.used = arenas[i].used;
        }
        if (taken) sample.data = taken->data;
        if (taken) sample.bytes = tensor_bytes(*taken);
        r->used[i] = arenas[i].used;
        add_memory(r, &sample);
    }
}

void record_reading(Recorder *r, const RecordReading *reading) {
    if (!r->options.whole || r->reading_count >= r->options.limit) return;
    r->readings = memory_grow(r->readings, &r->reading_room, r->reading_count + 1, sizeof *r->readings);
    r->readings[r->reading_count++] = *reading;
}

/* ---- graphs ---- */

struct RecordedGraph {
    const Recorder *recorder;
    double born;
    Record *records; // (count) parents are relative to the first record, which is the launch
    RecordMemory *memory;
    int64_t count, memory_count;
};

bool recorder_captures(const Recorder *r) {
    return r->options.capture != NULL;
}

bool recorder_knows(const Recorder *r, const RecordedGraph *graph) {
    return graph && graph->recorder == r && graph->born == r->born;
}

static const Record launch_record = {
    .kind = RECORD_GRAPH, .name = "graph", .call = "", .layer = -1, .step = -1};

void record_capture_begin(Recorder *r) {
    if (r->failure) return;
    r->capture = r->count < r->options.limit ? r->count : -1;
    r->capture_memory = r->memory_count;
    r->options.capture(r->options.marker, r->capture);
    record_begin(r, &launch_record);
}

static RecordedGraph *take_graph(Recorder *r) {
    RecordedGraph *g = memory_allocate(sizeof *g);
    *g = (RecordedGraph){.recorder = r,
                         .born = r->born,
                         .count = r->count - r->capture,
                         .memory_count = r->memory_count - r->capture_memory};
    g->records = memory_array((size_t)g->count, sizeof *g->records);
    g->memory = memory_array((size_t)g->memory_count, sizeof *g->memory);
    for (int64_t i = 0; i < g->count; i++) {
        g->records[i] = r->records[r->capture + i];
        g->records[i].parent -= r->capture;
    }
    for (int64_t i = 0; i < g->memory_count; i++) {
        g->memory[i] = r->memory[r->capture_memory + i];
        g->memory[i].record -= r->capture;
    }
    return g;
}

RecordedGraph *record_capture_end(Recorder *r) {
    if (r->failure) return NULL;
    record_end(r);
    r->options.capture(r->options.marker, -1);
    if (r->capture < 0 || r->failure) return NULL; // without memory the launches stay unattributed
    RecordedGraph *g = take_graph(r);
    r->count = r->capture;
    r->memory_count = r->capture_memory;
    return g;
}

void recorded_graph_free(RecordedGraph *graph) {
    if (!graph) return;
    memory_free(graph->records);
    memory_free(graph->memory);
    memory_free(graph);
}

static Status replay(Recorder *r, const RecordedGraph *g, int64_t kernels, int64_t step) {
    int64_t base = r->count, parent = r->depth ? r->open[r->depth - 1] : -1;
    double now = device_clock();
    if (base + g->count > r->options.limit) {
        r->dropped += g->count;
        r->open[r->depth++] = -1;
        return OK;
    }
    for (int64_t i = 0; i < g->count; i++) {
        TRY(make_room(r));
        Record *record = &r->records[r->count++];
        *record = g->records[i];
        record->parent = i ? base + record->parent : parent;
        record->step = step;
        record->cpu_start = record->cpu_end = now;
    }
    r->records[base].launches = -r->device->launches;
    for (int64_t i = 0; i < g->memory_count; i++) {
        RecordMemory sample = g->memory[i];
        sample.at = now + 1e-9 * (double)i; // keeps samples in order
        sample.record += base;
        add_memory(r, &sample);
    }
    r->options.replay(r->options.marker, base, kernels);
    r->open[r->depth++] = base;
    return OK;
}

void record_replay(Recorder *r, const RecordedGraph *graph, int64_t kernels, int64_t step) {
    if (r->failure) return;
    r->failure = r->depth < DEPTH_LIMIT ? replay(r, graph, kernels, step)
                                        : fail(ERROR_INTERNAL, "records nest too deeply");
}

static Status resolve(Recorder *r) {
    int64_t outermost = 0;
    for (int64_t i = 0; i < r->count; i++) {
        Record *record = &r->records[i];
        double ms = 1e3 * (record->cpu_end - record->cpu_start), start_ms;
        if (record->parent < 0) outermost = i;
        start_ms = 1e3 * (record->cpu_start - r->records[outermost].cpu_start);
        if (uses_events(r)) {
            TRY(r->device->elapsed(r->device, r->spans[outermost].start, r->spans[i].start, &start_ms));
            TRY(r->device->elapsed(r->device, r->spans[i].start, r->spans[i].end, &ms));
        }
        record->device_start = 1e-3 * start_ms;
        record->device_ms = ms;
    }
    return OK;
}

Status recorder_read(Recorder *r, const Record **records, int64_t *count, int64_t *dropped) {
    Status failure = r->failure;
    r->failure = OK;
    TRY(failure);
    TRY(r->device->synchronize(r->device));
    if (r->options.timed) TRY(resolve(r));
    *records = r->records;
    *count = r->count;
    *dropped = r->dropped;
    return OK;
}

void recorder_clear(Recorder *r) {
    r->count = 0;
    r->dropped = 0;
    r->depth = 0;
    r->memory_count = 0;
    r->reading_count = 0;
}

const RecordMemory *recorder_memory(const Recorder *r, int64_t *count) {
    *count = r->memory_count;
    return r->memory;
}

const RecordReading *recorder_readings(const Recorder *r, int64_t *count) {
    *count = r->reading_count;
    return r->readings;
}
