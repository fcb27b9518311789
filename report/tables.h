/* tables: what a trace says, as tables. */
#pragma once

#include "report/table.h"
#include "report/figures.h"

enum { TABLES_MOST = 24 };

/* Rows that a bundle's check reads: of "perf" and of "model". */
#define PERF_STEP   "batch cost, ms"
#define MODEL_STEPS "ProfileStep"

/* In the order of the report; `key` says which one it is: "operations", "operators", "overview", "model",
 * "device", "perf", "categories", "work", "kernels", "copies", "ranges", "user_defined", "distribution",
 * "memory", "memory_timeline", "tensors", "sources", "provenance"; by PyTorch's names "operations_by_shape", where there
 * are ranks "communication", "latency" where that is known, and "validation" after one. Of a trace without
 * events only "device" and "perf". */
typedef struct {
    Table tables[TABLES_MOST];
    int count;
} Tables;

/* All tables of a finished trace, with these names together; `figures` are its own. */
void tables_make(const Figures *figures, unsigned names, Tables *tables);
void tables_free(Tables *tables);

/* Whether some table has a column of this key: what --sort may name. */
bool tables_have_column(const char *key);
