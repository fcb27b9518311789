#include "report/torch_tables.h"

#include "base/json_read.h"
#include "base/memory.h"
#include "report/bundle_trace.h"
#include "report/table_json.h"

#include <string.h>

/* Copies the table by way of its JSON, so that it owns its memory as a table from a file does. */
static Status as_read(const Table *table, Table *read) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_auto_t *root = NULL;
    *read = (Table){0};
    fields_write(&w, table_fields, table);
    TRY(json_parse(w.text, (int64_t)w.length, table->key, &root));
    fields_read(root, table_fields, read);
    return OK;
}

static Status make(const Trace *t, bool by_shape, bool full, Table *read) {
    CLOSED_BY(table_free) Table table = torch_table(t, by_shape, full);
    return as_read(&table, read);
}

/* Replaces "operations" by the first table and inserts the second after it. */
static void place(BundlePath *path, const Table made[2]) {
    int64_t at = 0;
    while (at < path->tables_count && strcmp(path->tables[at].key, "operations") != 0) at++;
    const int64_t ours = at < path->tables_count, behind = path->tables_count - at - ours;
    Table *tables = memory_array((size_t)path->tables_count + 2, sizeof *tables);
    memcpy(tables, path->tables, (size_t)at * sizeof *tables);
    memcpy(tables + at, made, 2 * sizeof *tables);
    memcpy(tables + at + 2, path->tables + at + ours, (size_t)behind * sizeof *tables);
    if (ours) fields_free(table_fields, &path->tables[at]);
    memory_free(path->tables);
    path->tables = tables;
    path->tables_count += 2 - ours;
}

Status torch_tables(Bundle *bundle, bool full) {
    for (int64_t i = 0; i < bundle->paths_count; i++) {
        CLOSED_BY(bundle_trace_free) BundleTrace trace = {0};
        Table made[2];
        TRY(bundle_trace(bundle, i, &trace));
        TRY(make(&trace.trace, false, full, &made[0]));
        TRY(make(&trace.trace, true, full, &made[1]));
        place(&bundle->paths[i], made);
    }
    return OK;
}

bool torch_tables_have_column(const char *key) {
    Trace *trace = trace_open();
    trace_add(trace, &(TraceEvent){.name = "", .parent = -1, .launch = -1});
    trace->run.source = SOURCE_CUPTI; // a source with all columns
    CLOSED_BY(table_free) Table table = torch_table(trace, true, false);
    trace_close(trace);
    return table_column(&table, key) >= 0;
}
