/* chrome: a trace in the Trace Event Format of chrome://tracing and Perfetto: host threads; device streams
 * with operations above their kernels; an arrow from each launch to its kernel; counters of memory and speed.
 * With several ranks each has its own tracks, with arrows from the last rank in a collective to its peers. */
#pragma once

#include "base/json_writer.h"
#include "report/trace.h"

/* The whole file as one JSON object. Times are microseconds since the trace's origin, to the nanosecond. */
void chrome_render(const Trace *trace, JsonWriter *writer);

/* Writes the same to a file; compressed if `path` ends in ".gz". */
CHECKED Status chrome_write(const Trace *trace, const char *path);
