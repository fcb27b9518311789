/* profiling_options: options of profiling that ./train and ./infer share. */
#pragma once

#include "run/compute_options.h"
#include "report/table.h"
#include "profile/window.h"

/* The timelines to record, as in PyTorch's and Paddle's profilers: the host's ranges, the GPU's events. */
typedef enum { TARGETS_ALL, TARGETS_CPU, TARGETS_GPU } ProfilingTargets;

typedef enum { REPORT_BRIEF, REPORT_TABLES, REPORT_QUESTIONS } ProfilingReport;

typedef struct {
    const OptionSet *set; // the program's options, which a profile records; set by profiling_options_resolve
    const char *window;   // for window_parse; "": no profile
    const char *out;      // folder for the report's files; "": none
    const char *trace;    // name of the trace file; "": from the model and its sizes
    const char *range;    // name of a range around each recorded step; "": none
    ProfilingReport report;
    ProfilingTargets targets;
    bool sweep;          // compare several sizes
    bool timer_only;     // time steps, trace nothing
    bool skip_benchmark; // trace steps, time none with tracing off
    bool graphs;         // trace steps as CUDA graphs, as they are launched without a profile
    bool isolate;        // let the device rest before each primitive
    bool latency;        // record how long launches wait on their way to the device
    const char *sort;    // sort key, a column; "": each table's default
    int64_t limit;       // rows of a table; 0: all
    TimeUnit unit;
    bool full_names, torch;
    bool op_detail, thread_sep; // kernels below the operators; a row per thread
} ProfilingOptions;

#define PROFILING_DEFAULTS                                                                                   \
    { .window = "", .out = "", .trace = "", .range = "", .sort = "", .limit = 25, .op_detail = true }

/* --sweep alone profiles a short window; options for the look of tables imply that tables are shown. */
void profiling_options_resolve(const OptionSet *set, ProfilingOptions *options);

/* Lists the options as "dtype=auto", except those that only affect what is shown and where output goes. The
 * caller frees the list and its texts. Values are cut at 200 bytes. */
char **profiling_options_settings(const OptionSet *set, int64_t *count);
void profiling_options_settings_free(char **settings, int64_t count);

/* Parses the window in the options. */
CHECKED Status profiling_options_window(const ProfilingOptions *options, Window *window);

/* The number of steps that a run needs for its window and for times without tracing. */
CHECKED Status profiling_options_steps(const ProfilingOptions *options, int64_t *steps);

/* ERROR_USAGE if the device has none of the timelines. */
CHECKED Status profiling_options_device(const ProfilingOptions *options, const Device *device);

/* Creates the folder of --profile-out, so that an error shows before anything runs. */
CHECKED Status profiling_options_folder(const ProfilingOptions *options);

/* ERROR_USAGE for an invalid window, an unknown column, options without --profile, or graphs when `compute`
 * excludes them; also if the window records steps after `steps`, unless that is 0. */
CHECKED Status profiling_options_check(const ProfilingOptions *options, const ComputeOptions *compute,
                                       const OptionSet *set, int64_t steps);
