/* sweep: the profiles of several sizes of a run, side by side. */
#pragma once

#include "report/table.h"

enum { SWEEP_SUFFIX_BYTES = 64 };

/* "_bs8_seq128": what stands before the dot of a size's files. */
void sweep_suffix(int64_t batch, int64_t seq, char suffix[SWEEP_SUFFIX_BYTES]);

/* An empty comparison table; table_free it. */
Table sweep_table(void);

/* Adds a row for each path of the bundle that a size left in `folder`; with the first, what ran on what. */
CHECKED Status sweep_add(Table *table, const char *folder, int64_t batch, int64_t seq);

/* Prints the table to `file`, unless that is NULL, and writes sweep.md, sweep.csv and sweep.html, with
 * charts, into `folder`; `view` gives units. */
CHECKED Status sweep_write(const Table *table, const TableView *view, const char *folder, FILE *file);
