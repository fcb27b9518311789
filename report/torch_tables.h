/* torch_tables: the tables of operations under the names and columns of PyTorch's profiler, rendered from the events
 * that a bundle holds. */
#pragma once

#include "report/bundle_schema.h"

/* Of a bundle that was read, each path: "operations" becomes that of PyTorch's words, and behind it stands
 * "operations_by_shape". With `full` kernels keep their whole names. ERROR_FORMAT where no events were kept. */
CHECKED Status torch_tables(Bundle *bundle, bool full);

/* "operations" of a finished trace, or with `by_shape` "operations_by_shape". */
Table torch_table(const Trace *trace, bool by_shape, bool full);

/* What PyTorch's users publish where there is no GPU, too: all columns, no rows of kernels, by time on the device. */
Table torch_table_whole(const Trace *trace);

/* Whether one of the two has a column of this key. */
bool torch_tables_have_column(const char *key);
