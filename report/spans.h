/* spans: when an operation ran on its device, which is later than when the host launched it. */
#pragma once

#include "report/trace.h"

/* From the first to the last device event below a host event: what lies between them, the waiting of one
 * kernel for the next, is the operation's own. */
typedef struct {
    int64_t begin, end; // ns
    int32_t stream;     // of the first; -1: nothing below it ran on a device
} Span;

/* A span for each event of `trace`, filled for its operations; to be freed with memory_free. */
Span *spans_make(const Trace *trace);

/* On one stream a kernel may begin before the one ahead of it has ended (programmatic dependent launch),
 * but viewers take what crosses on a track amiss. So what overlaps goes to the next of a few lanes. All
 * zero: empty lanes. */
enum { LANES = 4 };
typedef struct {
    int64_t ends[LANES];
} Lanes;

/* The first lane that is free at `*begin`. Where none is, the one that is free first, and `*begin` moves
 * on to that time. */
int lanes_place(Lanes *lanes, int64_t *begin, int64_t end);

/* An interval of time. */
typedef struct {
    int64_t begin, end;
} Interval;

/* The time that is in at least one of the intervals, which this sorts: overlaps count once. */
int64_t intervals_union(Interval *intervals, int64_t count);
