/* profiling_report: what is printed and written of traces, as a program's options ask for it. */
#pragma once

#include "run/profiling_options.h"
#include "report/figures.h"
#include "report/trace.h"

#include <stdio.h>

/* Traces of a window's segments, one after another. */
typedef struct {
    Trace **traces;
    int64_t count, room;
} TraceList;

/* Columns of a terminal; of anything else those of a page. */
int terminal_width(FILE *file);

/* Takes the trace over. */
void trace_list_add(TraceList *list, Trace *trace);
void trace_list_free(TraceList *list);

/* Reports one trace, or with count 2 the naive and the fused form's side by side, with the differences of
 * their outputs where they were taken. Prints to `file`, unless that is NULL: tables or answers, as the
 * options say, and the audit. Writes the files where --profile-out asks for them, with `suffix` before
 * their dot. */
CHECKED Status profiling_report(const ProfilingOptions *options, Trace *const *traces, int count,
                                const Difference *differences, int difference_count, const char *suffix,
                                FILE *file);

/* The same of each segment: of one list, or with count 2 of the naive and the fused form's, in pairs. */
CHECKED Status profiling_report_lists(const ProfilingOptions *options, const TraceList *lists, int count,
                                      const Difference *differences, int difference_count, const char *suffix,
                                      FILE *file);
