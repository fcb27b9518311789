/* trace_records: a trace made of records: host events of all, and device events of what was innermost
 * where no other source tells of them. */
#pragma once

#include "kernels/record.h"
#include "report/trace.h"

/* While a trace is made. */
typedef struct {
    const Record *records;
    int64_t count;
    Trace *trace;   // its source is set
    int64_t origin; // ns of the monotonic clock
    int64_t outer;  // the event that encloses records without a parent; -1: none
    int64_t *event; // (count) of each the event that stands for it, or for what it lies in; -1: none
} Making;

static inline int64_t record_ns(double seconds) {
    return (int64_t)(seconds * 1e9 + 0.5);
}

/* A host event for each record but copies, fills and calls of libraries. */
void records_add_host(Making *making);

/* Then, on threads of their own, the batches that were read ahead. */
void records_add_readings(Making *making, const Recorder *recorder);

/* Then device events: copies, fills, calls of libraries and primitives without such; what lies around
 * them. */
void records_add_device(Making *making);

/* Then the memory's timeline, and the tensors at its peak. */
void records_add_memory(Making *making, const Recorder *recorder, size_t workspace,
                        const Arena arenas[ARENA_COUNT]);

/* A finished trace of operations (and primitives) alone, which were timed one by one: steps, and of each
 * record a device event for the time and the launches that no record inside it has. `limits` are those
 * measured. */
CHECKED Status records_trace(const Record *records, int64_t count, const Peaks *limits, Trace **trace);
