/* table_json: a table in JSON. */
#pragma once

#include "base/json_fields.h"
#include "report/table.h"

/* {"key":..., "title":..., "columns":[{"key","title","kind"}...], "rows":[[...]...], "notes":[...]} */
extern const Field table_fields[];

/* Checks a list of such objects beyond their form: there are columns, and cells match them. */
CHECKED Status table_check_all(const json_t *tables, size_t path);
