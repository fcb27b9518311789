/* sweep: compares the profiles of several sizes of a run. */
#pragma once

#include "report/table.h"

enum { SWEEP_SUFFIX_BYTES = 64 };

/* "_bs8_seq128": the part before the dot in the names of a size's files. */
void sweep_suffix(int64_t batch, int64_t seq, char suffix[SWEEP_SUFFIX_BYTES]);

/* An empty comparison table; free with table_free. */
Table sweep_table(void);

/* Adds a row for each path of the bundle that a size has written to `folder`; with the first, the heading. */
CHECKED Status sweep_add(Table *table, const char *folder, int64_t batch, int64_t seq);

/* Prints the table to `file`, unless that is NULL, and writes sweep.md, sweep.csv and sweep.html, with
 * charts, to `folder`; `view` sets units. */
CHECKED Status sweep_write(const Table *table, const TableView *view, const char *folder, FILE *file);
