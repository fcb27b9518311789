#include "profile/record.h"

#include "base/memory.h"

enum { DEPTH_LIMIT = 16, GROWTH = 4096 };

typedef struct {
    Event *start, *end;
} Span;

struct Recorder {
    Device *device;
    RecorderOptions options;
    int64_t count, dropped;
    int64_t room;    // records and spans allocated
    int64_t created; // spans whose events exist; they are used again after a clear
    Record *records;
    Span *spans;
    int64_t open[DEPTH_LIMIT]; // what has begun and not ended; -1: dropped
    int depth;
    RecordMemory *memory;
    int64_t memory_count, memory_room;
    size_t used[ARENA_COUNT]; // by arena, as last noted
    Status failure;
};

Status recorder_open(Device *device, const RecorderOptions *options, Recorder **recorder) {
    Recorder *r = memory_allocate(sizeof *r);
    if (!r) return fail(ERROR_MEMORY, "out of host memory for the profile");
    *r = (Recorder){.device = device, .options = *options};
    if (!r->options.limit) r->options.limit = 1000000;
    *recorder = r;
    return OK;
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
    status_free(r->failure);
    memory_free(r);
}

bool recorder_wants(const Recorder *r, RecordKind kind) {
    return kind == RECORD_PRIMITIVE ? r->options.primitives : kind == RECORD_OPERATION || r->options.whole;
}

static Status make_room(Recorder *r) {
    if (r->count == r->room) {
        int64_t room = r->room + (r->room > GROWTH ? r->room : GROWTH);
        Record *records = memory_resize(r->records, (size_t)room * sizeof *records);
        if (records) r->records = records;
        Span *spans = memory_resize(r->spans, (size_t)room * sizeof *spans);
        if (spans) r->spans = spans;
        if (!records || !spans)
            return fail(ERROR_MEMORY, "out of host memory for %lld records", (long long)room);
        r->room = room;
    }
    if (r->options.timed && r->count == r->created) {
        Span *span = &r->spans[r->created];
        TRY(r->device->event_create(r->device, &span->start));
        Status status = r->device->event_create(r->device, &span->end);
        if (status) {
            r->device->event_free(r->device, span->start);
            return status;
        }
        r->created++;
    }
    return OK;
}

static Status begin(Recorder *r, const Record *what) {
    int64_t index = -1;
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
        if (r->options.timed) TRY(r->device->event_record(r->device, r->spans[index].start));
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
    if (r->options.timed) TRY(r->device->event_record(r->device, r->spans[index].end));
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
    Record record = {.layer = -1, .place = "", .step = -1};
    if (parent >= 0) record = r->records[parent];
    record.kind = kind;
    record.name = names[kind];
    record.work = (Work){0, (double)bytes};
    record_begin(r, &record);
}

void record_end(Recorder *r) {
    if (r->failure) return;
    r->failure = r->depth > 0 ? end(r) : fail(ERROR_INTERNAL, "a record ends that never began");
}

void record_memory(Recorder *r, const Arena arenas[ARENA_COUNT]) {
    if (r->failure || !r->options.whole) return;
    for (int i = 0; i < ARENA_COUNT; i++) {
        bool first = r->memory_count <= i; // of each arena one, changed or not
        if ((!first && arenas[i].used == r->used[i]) || r->memory_count >= r->options.limit) continue;
        if (r->memory_count == r->memory_room) {
            int64_t room = 2 * r->memory_room + GROWTH;
            RecordMemory *moved = memory_resize(r->memory, (size_t)room * sizeof *moved);
            if (!moved) {
                r->failure = fail(ERROR_MEMORY, "out of host memory for %lld records", (long long)room);
                return;
            }
            r->memory = moved;
            r->memory_room = room;
        }
        r->used[i] = arenas[i].used;
        r->memory[r->memory_count++] = (RecordMemory){device_clock(), (ArenaKind)i, arenas[i].used,
                                                      r->depth ? r->open[r->depth - 1] : -1};
    }
}

static Status resolve(Recorder *r) {
    int64_t outermost = 0;
    for (int64_t i = 0; i < r->count; i++) {
        Record *record = &r->records[i];
        double ms;
        if (record->parent < 0) outermost = i;
        TRY(r->device->elapsed(r->device, r->spans[outermost].start, r->spans[i].start, &ms));
        record->device_start = 1e-3 * ms;
        TRY(r->device->elapsed(r->device, r->spans[i].start, r->spans[i].end, &record->device_ms));
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
}

const RecordMemory *recorder_memory(const Recorder *r, int64_t *count) {
    *count = r->memory_count;
    return r->memory;
}
