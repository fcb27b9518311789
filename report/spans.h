/* spans: when an operation ran on its device, which is later than its launch on the host. */
#pragma once

#include "report/trace.h"

/* The time from the first to the last device event below a host event; gaps between its kernels belong to the
 * operation. */
typedef struct {
    int64_t begin, end; // ns
    int32_t stream;     // stream of the first device event; -1: no event below ran on a device
} Span;

/* A span for each event of `trace`, filled for operations; free with memory_free. */
Span *spans_make(const Trace *trace);

/* Viewers cannot show overlapping slices on a track, but a kernel may begin before the previous one on its
 * stream has ended (programmatic dependent launch). So overlapping events go to the next of a few lanes. All
 * zero: empty lanes. */
enum { LANES = 4 };
typedef struct {
    int64_t ends[LANES];
} Lanes;

/* The first lane that is free at `*begin`. If none is, the one that becomes free first, and `*begin` advances
 * to that time. */
int lanes_place(Lanes *lanes, int64_t *begin, int64_t end);

/* An interval of time. */
typedef struct {
    int64_t begin, end;
} Interval;

/* By beginning. */
void intervals_sort(Interval *intervals, int64_t count);

/* The total length of the union of the intervals, in which overlaps count once. Sorts the intervals. */
int64_t intervals_union(Interval *intervals, int64_t count);
