/* tables: makes all tables of a trace. */
#pragma once

#include "report/table.h"
#include "report/figures.h"

enum { TABLES_MOST = 24 };

/* Rows of "perf" and "model" that a bundle's check reads. */
#define PERF_STEP   "batch cost, ms"
#define MODEL_STEPS "ProfileStep"

/* Tables in the order of the report, identified by `key`: "operations", "operators", "overview", "model",
 * "device", "perf", "categories", "work", "kernels", "copies", "ranges", "user_defined", "distribution",
 * "memory", "memory_timeline", "tensors", "sources", "provenance"; with ranks "communication", with known
 * latencies "latency", and after a validation "validation". A trace without events has only "device" and
 * "perf". */
typedef struct {
    Table tables[TABLES_MOST];
    int count;
} Tables;

/* All tables of a finished trace, with `names`; `figures` are the trace's. */
void tables_make(const Figures *figures, unsigned names, Tables *tables);
void tables_free(Tables *tables);

/* Whether some table has a column with this key, for --sort. */
bool tables_have_column(const char *key);
