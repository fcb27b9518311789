/* collectives: what the ranks of a run did together, and how much of it was hidden beside computation. */
#pragma once

#include "report/spans.h"
#include "report/trace.h"

/* A collective of the recorded steps, as each rank ran it. */
typedef struct {
    const char *name; // "reduce-scatter"
    const char *call; // what it moved: "gradients"
    Traffic kind;
    bool waits;         // no rank is through with it before all have come; else each does its own part
    int64_t step;       // in which
    double sent;        // bytes that had to leave each rank
    double bytes;       // of the whole tensor
    Span *spans;        // (ranks) on the device, or where it has no events of its own, on the host
    int64_t *events;    // (ranks) the operation, in each rank's trace
    int first, last;    // the ranks that began first, and last
    int64_t begin, end; // from when all ranks were in it until the last was through; ns
} Collected;

typedef struct {
    Collected *list; // in order; (count)
    int64_t count;
    int32_t ranks;
    const char *amiss; // where the ranks' collectives do not agree: the list is empty. NULL: they do
} Collectives;

Collectives collectives_of(const Trace *trace);
void collectives_free(Collectives *collectives);

/* Device time of a trace's recorded steps; what overlaps counts once. ns */
typedef struct {
    double computation, communication, overlap;
    double exposed; // communication beside which nothing else ran
} Distribution;
Distribution distribution_of(const Trace *trace);
