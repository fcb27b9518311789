/* chrome: a trace in the Trace Event Format of chrome://tracing and Perfetto: host threads, device streams
 * with operations over their kernels, an arrow from each launch to its kernel, counters of memory and
 * speed; of several ranks a row of each, and arrows from the rank that came last into a collective to its
 * peers. */
#pragma once

#include "base/json_writer.h"
#include "report/trace.h"

/* The whole file as one JSON object. Times are microseconds since the trace's origin, to the nanosecond. */
void chrome_render(const Trace *trace, JsonWriter *writer);

/* Writes it; compressed when `path` ends in ".gz". */
CHECKED Status chrome_write(const Trace *trace, const char *path);
