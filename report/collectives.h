/* collectives: the collectives of a run's ranks, and how much of them overlapped with computation. */
#pragma once

#include "report/spans.h"
#include "report/trace.h"

/* A collective of the recorded steps, as each rank ran it. */
typedef struct {
    const char *name; // "reduce-scatter"
    const char *call; // content of the exchange: "gradients"
    Traffic kind;
    bool waits;         // no rank can leave before all have entered; otherwise each does its own part
    int64_t step;       // the step that contains the collective
    double sent;        // bytes that had to leave each rank
    double bytes;       // bytes of the whole tensor
    Span *spans;        // (ranks) on the device, or on the host if it has no device events
    int64_t *events;    // (ranks) the operation, in each rank's trace
    int first, last;    // the ranks that began first, and last
    int64_t begin, end; // from the moment when all ranks had entered until the last one left; ns
} Collected;

typedef struct {
    Collected *list; // in order; (count)
    int64_t count;
    int32_t ranks;
    const char *mismatch; // why the ranks' collectives do not match, and the list is empty; NULL: they match
} Collectives;

Collectives collectives_of(const Trace *trace);
void collectives_free(Collectives *collectives);

/* Device time of a trace's recorded steps; overlaps count once. ns */
typedef struct {
    double computation, communication, overlap;
    double exposed; // communication that did not overlap with anything
} Distribution;
Distribution distribution_of(const Trace *trace);
