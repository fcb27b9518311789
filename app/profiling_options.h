/* profiling_options: how a program is profiled; the part of the options that ./train and ./infer share. */
#ifndef APP_PROFILING_OPTIONS_H
#define APP_PROFILING_OPTIONS_H

#include "app/compute_options.h"
#include "profile/table.h"

typedef enum { REPORT_TABLES, REPORT_QUESTIONS } ProfilingReport;

typedef struct {
    const char *window; // for window_parse; "": no profile
    const char *out;    // folder for the report's files; "": none
    const char *trace;  // name of the trace file there
    ProfilingReport report;
    bool sweep;       // of several sizes, side by side
    bool timer_only;  // time steps, trace nothing
    bool graphs;      // trace steps as they are launched without a profile: as CUDA graphs
    bool apart;       // let the device rest before each primitive
    bool latency;     // ask how long launches wait on their way to the device
    const char *sort; // key of a column; "": as each table is
    int64_t limit;    // rows of a table; 0: all
    TimeUnit unit;
    bool full_names, torch;
} ProfilingOptions;

/* Their rows of an option table, for a struct whose member `profiling` they fill; and their defaults. */
#define PROFILING_ROWS(Struct)                                                                               \
    PROFILING_WINDOW(Struct), PROFILING_SOURCE(Struct), PROFILING_OUTPUT(Struct), PROFILING_TABLES(Struct)
#define PROFILING_WINDOW(Struct)                                                                             \
    {                                                                                                        \
        OPTION_TEXT, "profile", .argument = "WINDOW", .bare = "3,0,1,5,1",                                   \
                                .doc = "skip,closed,ready,record,repeat or [a,b): trace these steps",        \
                                .field = offsetof(Struct, profiling.window)                                  \
    }
#define PROFILING_SOURCE(Struct)                                                                             \
    {OPTION_FLAG, "profile-graphs", .doc = "with --profile: steps as CUDA graphs, not kernel by kernel",     \
     .field = offsetof(Struct, profiling.graphs)},                                                           \
        {OPTION_FLAG, "profile-apart",                                                                       \
         .doc = "with --profile: each primitive alone, on a GPU that has rested",                            \
         .field = offsetof(Struct, profiling.apart)},                                                        \
    {                                                                                                        \
        OPTION_FLAG, "profile-latency", .doc = "with --profile: how long kernels wait to be submitted",      \
                                        .field = offsetof(Struct, profiling.latency)                         \
    }
#define PROFILING_OUTPUT(Struct)                                                                             \
    {OPTION_TEXT, "profile-out", .argument = "FOLDER", .doc = "write the profile's files there",             \
     .field = offsetof(Struct, profiling.out)},                                                              \
        {OPTION_TEXT, "profile-trace", .argument = "NAME",                                                   \
         .doc = "of the trace in that folder; .gz compresses it",                                            \
         .field = offsetof(Struct, profiling.trace)},                                                        \
        {OPTION_CHOICE, "report", .choices = "tables|questions", .doc = "what the profile prints",           \
         .field = offsetof(Struct, profiling.report)},                                                       \
        {OPTION_FLAG, "sweep", .doc = "profile each of --batch-sizes with each of --seq-lens, compare",      \
         .field = offsetof(Struct, profiling.sweep)},                                                        \
    {                                                                                                        \
        OPTION_FLAG, "timer-only", .doc = "with --profile: time steps, trace nothing",                       \
                                   .field = offsetof(Struct, profiling.timer_only)                           \
    }
#define PROFILING_TABLES(Struct)                                                                             \
    {OPTION_TEXT, "sort", .argument = "COLUMN", .doc = "sort the profile's tables by this column",           \
     .field = offsetof(Struct, profiling.sort)},                                                             \
        {OPTION_INTEGER,                                                                                     \
         "limit",                                                                                            \
         .argument = "N",                                                                                    \
         .least = 0,                                                                                         \
         .most = 1000000,                                                                                    \
         .doc = "rows of the profile's tables; 0 for all",                                                   \
         .field = offsetof(Struct, profiling.limit)},                                                        \
        {OPTION_CHOICE, "unit", .choices = "auto|s|ms|us|ns", .doc = "of the profile's times",               \
         .field = offsetof(Struct, profiling.unit)},                                                         \
        {OPTION_FLAG, "full-names", .doc = "do not cut long names in the profile",                           \
         .field = offsetof(Struct, profiling.full_names)},                                                   \
    {                                                                                                        \
        OPTION_FLAG, "torch-compat", .doc = "name operations as PyTorch's profiler does",                    \
                                     .field = offsetof(Struct, profiling.torch)                              \
    }
#define PROFILING_DEFAULTS                                                                                   \
    { .window = "", .out = "", .trace = "trace.json", .sort = "", .limit = 25 }

/* --sweep alone profiles a short window. */
void profiling_options_resolve(ProfilingOptions *options);

/* The steps that a run needs for its window and for the times without tracing. */
CHECKED Status profiling_options_steps(const ProfilingOptions *options, int64_t *steps);

/* Makes the folder of --profile-out, so that what cannot be written shows before anything runs. */
CHECKED Status profiling_options_folder(const ProfilingOptions *options);

/* ERROR_USAGE for a window that cannot be, a column that no table has, options without --profile, graphs that
 * `compute` rules out. A window that records steps after `steps`, unless that is 0, cannot be. */
CHECKED Status profiling_options_check(const ProfilingOptions *options, const ComputeOptions *compute,
                                       const OptionSet *set, int64_t steps);

#endif
