/* What the files of tables.c share. */
#ifndef PROFILE_TABLES_INTERNAL_H
#define PROFILE_TABLES_INTERNAL_H

#include "profile/tables.h"

/* Of times, in ns. */
typedef struct {
    int64_t count;
    double total, mean, median, least, most, deviation;
} Stats;

Stats stats_make(double *values, int64_t count); // sorts them

/* Values that fall into rows: the times of each kernel, of each phase. */
typedef struct {
    int64_t row;
    double value;
} RowValue;

typedef struct {
    RowValue *values;
    int64_t count, room;
} RowValues;

CHECKED Status row_values_add(RowValues *values, int64_t row, double value);
/* Sorts by row and value; then fills `stats` (rows), all zero for a row without values. */
CHECKED Status row_values_stats(RowValues *values, Stats *stats, int64_t rows);
void row_values_free(RowValues *values);

/* A share that is not known, of nothing, is an empty cell. */
double share_of(double part, double whole);

/* Whether the event lies in a recorded step; what does not is in no table. */
bool in_step(const TraceEvent *event);

/* Wall time of the recorded steps, time on the device in them, in ns. */
double steps_length(const Trace *trace);
double device_length(const Trace *trace);

/* "attention forward" */
enum { LABEL_BYTES = 160 };
void operation_label(const TraceEvent *event, char text[LABEL_BYTES]);

/* The tables. */
CHECKED Status table_operations(const Trace *trace, unsigned names, Table *table);
CHECKED Status table_kernels(const Trace *trace, unsigned names, Table *table);
CHECKED Status table_latency(const Trace *trace, unsigned names, Table *table);
CHECKED Status table_copies(const Trace *trace, Table *table);
CHECKED Status table_ranges(const Trace *trace, Table *table);
CHECKED Status table_categories(const Trace *trace, Table *table);
CHECKED Status table_sources(const Trace *trace, Table *table);
CHECKED Status table_device(const Trace *trace, Table *table);
CHECKED Status table_overview(const Trace *trace, Table *table);
CHECKED Status table_model(const Trace *trace, Table *table);
CHECKED Status table_distribution(const Trace *trace, Table *table);
CHECKED Status table_perf(const Trace *trace, Table *table);
CHECKED Status table_work(const Trace *trace, Table *table);
CHECKED Status table_memory(const Trace *trace, Table *table);
CHECKED Status table_timeline(const Trace *trace, Table *table);
CHECKED Status table_tensors(const Trace *trace, Table *table);

#define COLUMNS(columns) columns, (int)(sizeof(columns) / sizeof *(columns))

#endif
