/* trace_records: makes a trace from records: host events for all of them, and device events for the innermost
 * if no other source reports them. */
#pragma once

#include "kernels/record.h"
#include "report/trace.h"

/* The state while a trace is made. */
typedef struct {
    const Record *records;
    int64_t count;
    Trace *trace;   // the trace being made; its source is set
    int64_t origin; // ns of the monotonic clock
    int64_t outer;  // the event that encloses records without a parent; -1: none
    int64_t *event; // (count) for each record its event, or that of the enclosing record; -1: none
} Making;

static inline int64_t record_ns(double seconds) {
    return (int64_t)(seconds * 1e9 + 0.5);
}

/* Adds a host event for each record except copies, fills and library calls. */
void records_add_host(Making *making);

/* Then adds the prefetched batches, on separate threads. */
void records_add_readings(Making *making, const Recorder *recorder);

/* Then adds device events: copies, fills, library calls, primitives without any of these, and gaps around
 * them. */
void records_add_device(Making *making);

/* Then adds the memory timeline, and the tensors at its peak. */
void records_add_memory(Making *making, const Recorder *recorder, size_t workspace,
                        const Arena arenas[ARENA_COUNT]);

/* A finished trace of operations (and primitives) that were timed one by one: steps, and for each record a
 * device event with the time and launches that no inner record has. `limits` are measured ones. */
CHECKED Status records_trace(const Record *records, int64_t count, const Peaks *limits, Trace **trace);
