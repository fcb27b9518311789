/* tables_internal: one function per table, for tables.c; `names` as in trace.h. */
#pragma once

#include "report/table.h"
#include "report/figures.h"

/* A row's calls, and its times on the host and on the device. */
#define TIMED                                                                                                \
    {"calls", "Calls", CELL_COUNT}, {"cpu_ns", "CPU total", CELL_TIME},                                      \
        {"cpu_mean_ns", "Average", CELL_TIME}, {"cpu_most_ns", "Maximum", CELL_TIME},                        \
        {"cpu_least_ns", "Minimum", CELL_TIME}, {"cpu_share", "Ratio", CELL_SHARE},                          \
        {"device_ns", "Device total", CELL_TIME}, {"device_mean_ns", "Average", CELL_TIME},                  \
        {"device_most_ns", "Maximum", CELL_TIME}, {"device_least_ns", "Minimum", CELL_TIME}, {               \
        "device_share", "Ratio", CELL_SHARE                                                                  \
    }

Table table_operations(const Trace *trace);
Table table_kernels(const Figures *figures, unsigned names);
Table table_latency(const Figures *figures, unsigned names);
Table table_copies(const Trace *trace);
Table table_operators(const Trace *trace, unsigned names);
Table table_ranges(const Trace *trace, unsigned names);
Table table_user_defined(const Trace *trace, unsigned names);
Table table_categories(const Figures *figures);
Table table_sources(const Trace *trace);
Table table_device(const Trace *trace);
Table table_overview(const Trace *trace);
Table table_model(const Trace *trace);
Table table_distribution(const Trace *trace);
Table table_communication(const Trace *trace);
Table table_perf(const Trace *trace);
Table table_validation(const Trace *trace);
Table table_work(const Figures *figures);
Table table_memory(const Figures *figures);
Table table_timeline(const Trace *trace);
Table table_tensors(const Trace *trace);
