/* Feeds mutated profile bundles to their reader. */
#include "report/bundle_check.h"
#include "report/markdown_report.h"
#include "report/print.h"
#include "report/table_json.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void read_bundle(const uint8_t *data, size_t size) {
    Bundle bundle;
    scratch_put("bundle.json", data, size);
    Status status = bundle_read(SCRATCH "/bundle.json", &bundle);
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    must(bundle.paths_count >= 1 && bundle.paths_count <= FORM_COUNT);
    for (int64_t i = 0; i < bundle.paths_count; i++)
        for (int64_t k = 0; k < bundle.paths[i].rows_count; k++) {
            const OperationRow *row = &bundle.paths[i].rows[k];
            must(isfinite(row->ns) && row->ns >= 0 && strlen(row->call) <= 4096);
        }
    Status agree = bundle_check(&bundle);
    if (agree) must_refuse(agree, ERROR_FORMAT);
    FILE *nowhere = fopen("/dev/null", "w");
    bundle_print_tables(&bundle, &(TableView){.limit = 3, .sort = ""}, nowhere);
    bundle_print_questions(&bundle, nowhere);
    bundle_print_audit(&bundle, nowhere);
    markdown_report_print(&bundle, nowhere);
    fields_describe(bundle_fields, nowhere);
    fclose(nowhere);
    for (int64_t i = 0; i < bundle.paths_count; i++)
        for (int64_t k = 0; k < bundle.paths[i].tables_count; k++) {
            JsonWriter text = {0};
            fields_write(&text, table_fields, &bundle.paths[i].tables[k]);
            json_writer_free(&text);
        }
    bundle_free(&bundle);
}

FUZZ(bundle, read_bundle, mutate_json)
