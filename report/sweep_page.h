/* sweep_page: the sizes of a sweep as a self-contained page of charts. */
#pragma once

#include "report/table.h"

/* A chart for each of these columns, with a bar per row, labelled by the first `names` columns; then the
 * table. */
void sweep_page_print(const Table *table, int names, const int *columns, int count, FILE *file);
