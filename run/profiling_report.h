/* profiling_report: prints and writes traces as a program's options request. */
#pragma once

#include "run/profiling_options.h"
#include "report/figures.h"
#include "report/trace.h"

#include <stdio.h>

/* Traces of a window's segments, in order. */
typedef struct {
    Trace **traces;
    int64_t count, room;
} TraceList;

/* Takes ownership of the trace. */
void trace_list_add(TraceList *list, Trace *trace);
void trace_list_free(TraceList *list);

/* Reports one trace, or with count 2 the naive and the fused form's side by side, with the differences of
 * their outputs if measured. Prints tables or answers, as the options say, and the audit to `file`, unless
 * that is NULL. With --profile-out writes the files, with `suffix` before their dot. */
CHECKED Status profiling_report(const ProfilingOptions *options, Trace *const *traces, int count,
                                const Difference *differences, int difference_count, const char *suffix,
                                FILE *file);

/* The same for each segment: from one list, or with count 2 from the naive and the fused form's lists, in
 * pairs. */
CHECKED Status profiling_report_lists(const ProfilingOptions *options, const TraceList *lists, int count,
                                      const Difference *differences, int difference_count, const char *suffix,
                                      FILE *file);
