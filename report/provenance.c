#include "report/provenance.h"

#include "base/wrap.h"

#include <inttypes.h>
#include <string.h>

enum { WHAT, VALUE, NAME_BYTES = 64 };

static void add(Table *table, const char *what, const char *value) {
    if (!value || !*value) return;
    table_add_row(table);
    table_set_text(table, WHAT, what);
    table_set_text(table, VALUE, value);
}

static void add_count(Table *table, const char *what, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    if (value > 0) add(table, what, text);
}

/* "dtype=fp32" becomes the row "--dtype". */
static void add_setting(Table *table, const char *setting) {
    char name[NAME_BYTES];
    const char *value = strchr(setting, '=');
    if (!value) return;
    snprintf(name, sizeof name, "--%.*s", (int)(value - setting), setting);
    add(table, name, value + 1);
}

Table table_provenance(const TraceRun *r) {
    static const TableColumn columns[] = {{"what", "What", CELL_TEXT}, {"value", "Value", CELL_TEXT}};
    Table t = TABLE("provenance", "Provenance", columns);
    add(&t, "command", r->command);
    add(&t, "version", r->version);
    add(&t, "commit", r->commit);
    add(&t, "build", r->build);
    add(&t, "date", r->date);
    add(&t, "program", r->program);
    add(&t, "model", r->model);
    add(&t, "precision", r->dtype);
    add(&t, "device", r->device);
    add(&t, "device clocks", r->device_clocks);
    add(&t, "driver", r->driver);
    add(&t, "library", r->library);
    add(&t, "communication", r->engine);
    add_count(&t, "ranks", r->ranks);
    add(&t, "processor", r->host);
    add(&t, "processor clocks", r->host_clocks);
    add_count(&t, "threads", r->threads);
    add_count(&t, "batch", r->batch);
    add_count(&t, "seq", r->seq);
    add_count(&t, "accum", r->accum);
    add_count(&t, "layers", r->layers);
    add_count(&t, "heads", r->heads);
    add_count(&t, "width", r->width);
    add_count(&t, "parameters", r->parameters);
    for (int64_t i = 0; i < r->settings_count; i++) add_setting(&t, r->settings[i]);
    return t;
}

static const char *cell(const Table *t, int64_t row, int column) {
    return t->cells[row * t->column_count + column].text;
}

void provenance_print_differences(const TraceRun *before, const TraceRun *after, FILE *file) {
    Table a = table_provenance(before), b = table_provenance(after);
    for (int64_t i = 0; i < a.rows; i++) {
        const char *what = cell(&a, i, WHAT);
        if (strcmp(what, "date") == 0 || strstr(what, " clocks")) continue;
        for (int64_t k = 0; k < b.rows; k++)
            if (strcmp(what, cell(&b, k, WHAT)) == 0 && strcmp(cell(&a, i, VALUE), cell(&b, k, VALUE)) != 0)
                print_report("", 0, file, "DIFFERENT %s: %s, then %s", what, cell(&a, i, VALUE),
                             cell(&b, k, VALUE));
    }
    table_free(&a);
    table_free(&b);
}
