/* profiling_options: how a program is profiled; the part of the options that ./train and ./infer share. */
#pragma once

#include "run/compute_options.h"
#include "report/table.h"
#include "profile/window.h"

typedef enum { REPORT_BRIEF, REPORT_TABLES, REPORT_QUESTIONS } ProfilingReport;

typedef struct {
    const OptionSet
        *set;           // of the program, all of which a profile tells; NULL before profiling_options_resolve
    const char *window; // for window_parse; "": no profile
    const char *out;    // folder for the report's files; "": none
    const char *trace;  // name of the trace file there; "": of the model and its sizes
    const char *range;  // name of a recorded step; "": of none
    ProfilingReport report;
    bool sweep;          // of several sizes, side by side
    bool timer_only;     // time steps, trace nothing
    bool skip_benchmark; // trace steps, time none with tracing off
    bool graphs;         // trace steps as they are launched without a profile: as CUDA graphs
    bool apart;          // let the device rest before each primitive
    bool latency;        // ask how long launches wait on their way to the device
    const char *sort;    // key of a column; "": as each table is
    int64_t limit;       // rows of a table; 0: all
    TimeUnit unit;
    bool full_names, torch;
} ProfilingOptions;

#define PROFILING_DEFAULTS                                                                                   \
    { .window = "", .out = "", .trace = "", .range = "", .sort = "", .limit = 25 }

/* --sweep alone profiles a short window; who says how tables are to look wants to see them. */
void profiling_options_resolve(const OptionSet *set, ProfilingOptions *options);

/* What the options are, "dtype=auto" each, but for those that change only what is shown or where it goes: the caller
 * frees the list and its texts. Values are cut at 200 bytes. */
char **profiling_options_settings(const OptionSet *set, int64_t *count);
void profiling_options_settings_free(char **settings, int64_t count);

/* The steps that the options name. */
CHECKED Status profiling_options_window(const ProfilingOptions *options, Window *window);

/* The steps that a run needs for its window and for the times without tracing. */
CHECKED Status profiling_options_steps(const ProfilingOptions *options, int64_t *steps);

/* Makes the folder of --profile-out, so that what cannot be written shows before anything runs. */
CHECKED Status profiling_options_folder(const ProfilingOptions *options);

/* ERROR_USAGE for a window that cannot be, a column that no table has, options without --profile, graphs that
 * `compute` rules out. A window that records steps after `steps`, unless that is 0, cannot be. */
CHECKED Status profiling_options_check(const ProfilingOptions *options, const ComputeOptions *compute,
                                       const OptionSet *set, int64_t steps);
