/* events: the recorded events in a bundle, from which a trace is rendered without the program that recorded
 * them: the Chrome trace, and the tables with PyTorch's names. */
#pragma once

#include "base/json_fields.h"
#include "report/trace.h"

/* Of a path; recorded steps that have no room in it are left out as a whole. */
enum { EVENTS_MOST = 150000 };

/* What one rank recorded. Events of which all but times and places is the same have one description. */
typedef struct {
    int64_t rank, left_out; // left_out: events of the steps that found no room
    const char *host, *device;
    TraceEvent *kinds; // (kinds_count) descriptions
    int64_t kinds_count;
    Trace *trace;
    int64_t *numbers;     // (trace->count) which description an event has, -1: left out; while it is written
    int64_t tokens_count; // recorded steps
} RankEvents;

extern const Field event_fields[]; // of a RankEvents

/* The events of a finished trace and of those of the other ranks, (*count), to be freed with events_unmake. The
 * traces must outlive them. */
RankEvents *events_make(const Trace *trace, int64_t *count);
void events_unmake(RankEvents *ranks, int64_t count);

/* Checks a path's events beyond their form: that every event's number, enclosing event and launch exist.
 * ERROR_FORMAT. */
CHECKED Status events_check(const json_t *ranks, size_t path);
