/* torch_tables: the tables of operations with the names and columns of PyTorch's profiler. They are made
 * from the events in a bundle. */
#pragma once

#include "report/bundle_schema.h"

/* Replaces each path's table "operations" by PyTorch's, and inserts "operations_by_shape" after it. `full`
 * keeps kernels' whole names. The bundle must have been read from a file. ERROR_FORMAT if it holds no
 * events. */
CHECKED Status torch_tables(Bundle *bundle, bool full);

/* Makes "operations" from a finished trace, or "operations_by_shape". */
Table torch_table(const Trace *trace, bool by_shape, bool full);

/* Makes "operations" with all columns, even without a GPU, and without rows for kernels, sorted by device
 * time. */
Table torch_table_whole(const Trace *trace);

/* Whether one of the two tables has a column with this key. */
bool torch_tables_have_column(const char *key);
