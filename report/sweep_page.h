/* sweep_page: the sizes of a sweep as a page of charts, which needs no network and no other file. */
#pragma once

#include "report/table.h"

/* A chart for each of these columns, with a bar for each row, which the first `names` columns name; then the
 * table. */
void sweep_page_print(const Table *table, int names, const int *columns, int count, FILE *file);
