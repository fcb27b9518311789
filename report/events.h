/* events: the recorded events in a bundle. Output that needs single events is made from them without the
 * program that recorded them: the Chrome trace, and the tables with PyTorch's names. */
#pragma once

#include "base/json_fields.h"
#include "report/trace.h"

/* Per path; recorded steps that do not fit are left out as a whole. */
enum { EVENTS_MOST = 150000 };

/* Events of one rank. Events that differ only in times and places are of one kind. */
typedef struct {
    int64_t rank, left_out; // left_out: events of the steps that did not fit
    const char *host, *device;
    TraceEvent *kinds; // (kinds_count)
    int64_t kinds_count;
    Trace *trace;
    int64_t *numbers; // (trace->count) each event's kind, -1: left out; used while writing
} RankEvents;

extern const Field event_fields[]; // keys of a RankEvents

/* The events of a finished trace and of those of the other ranks, (*count); free with events_unmake. The
 * traces must outlive them. */
RankEvents *events_make(const Trace *trace, int64_t *count);
void events_unmake(RankEvents *ranks, int64_t count);

/* Checks a path's events beyond their form: every event's number, parent and launch must exist.
 * ERROR_FORMAT. */
CHECKED Status events_check(const json_t *ranks, size_t path);
