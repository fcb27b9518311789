/* table_json: a table in a file. */
#pragma once

#include "base/json_fields.h"
#include "report/table.h"

/* {"key":..., "title":..., "columns":[{"key","title","kind"}...], "rows":[[...]...], "notes":[...]} */
extern const Field table_fields[];

/* Of a list of such objects, whose form was checked: there are columns, and cells fit into them. */
CHECKED Status table_check_all(const json_t *tables, size_t path);
