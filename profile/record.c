#include "profile/record.h"

#include "base/memory.h"

enum { DEPTH_LIMIT = 8, GROWTH = 4096 };

typedef struct {
    Event *start, *end;
} Span;

struct Recorder {
    Device *device;
    bool primitives;
    int64_t limit, count, dropped;
    int64_t room;    // records and spans allocated
    int64_t created; // spans whose events exist; they are used again after a clear
    Record *records;
    Span *spans;
    int64_t open[DEPTH_LIMIT]; // what has begun and not ended; -1: dropped
    int depth;
    Status failure;
};

Status recorder_open(Device *device, int64_t limit, bool primitives, Recorder **recorder) {
    Recorder *r = memory_allocate(sizeof *r);
    if (!r) return fail(ERROR_MEMORY, "out of host memory for the profile");
    *r = (Recorder){.device = device, .limit = limit ? limit : 1000000, .primitives = primitives};
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
    status_free(r->failure);
    memory_free(r);
}

bool recorder_wants_primitives(const Recorder *r) {
    return r->primitives;
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
    if (r->count == r->created) {
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
    if (r->count >= r->limit) {
        r->dropped++;
    } else {
        TRY(make_room(r));
        index = r->count++;
        Record *record = &r->records[index];
        *record = *what;
        record->parent = r->depth ? r->open[r->depth - 1] : -1;
        record->launches = -r->device->launches;
        record->cpu_start = device_clock();
        TRY(r->device->event_record(r->device, r->spans[index].start));
    }
    r->open[r->depth++] = index;
    return OK;
}

static Status end(Recorder *r) {
    int64_t index = r->open[--r->depth];
    if (index < 0) return OK;
    Record *record = &r->records[index];
    TRY(r->device->event_record(r->device, r->spans[index].end));
    record->cpu_end = device_clock();
    record->launches += r->device->launches;
    return OK;
}

void record_begin(Recorder *r, const Record *what) {
    if (r->failure) return;
    r->failure = r->depth < DEPTH_LIMIT ? begin(r, what) : fail(ERROR_INTERNAL, "records nest too deeply");
}

void record_end(Recorder *r) {
    if (r->failure) return;
    r->failure = r->depth > 0 ? end(r) : fail(ERROR_INTERNAL, "a record ends that never began");
}

Status recorder_read(Recorder *r, const Record **records, int64_t *count, int64_t *dropped) {
    Status failure = r->failure;
    r->failure = OK;
    TRY(failure);
    TRY(r->device->synchronize(r->device));
    for (int64_t i = 0; i < r->count; i++)
        TRY(r->device->elapsed(r->device, r->spans[i].start, r->spans[i].end, &r->records[i].device_ms));
    *records = r->records;
    *count = r->count;
    *dropped = r->dropped;
    return OK;
}

void recorder_clear(Recorder *r) {
    r->count = 0;
    r->dropped = 0;
    r->depth = 0;
}
