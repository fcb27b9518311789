#define _GNU_SOURCE
#include "profile/sweep.h"

#include "base/files.h"
#include "base/memory.h"
#include "profile/bundle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH,
    SEQ,
    PATH,
    STEP,
    LOW,
    HIGH,
    TOKENS,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    IDLE,
    LAUNCHES,
    MFU,
    PEAK,
    OVERHEAD,
    AUDIT,
};

static const TableColumn columns[] = {
    [BATCH] = {"batch", "Batch", CELL_COUNT},
    [SEQ] = {"seq", "Seq", CELL_COUNT},
    [PATH] = {"path", "Path", CELL_TEXT},
    [STEP] = {"step_ns", "Step", CELL_TIME},
    [LOW] = {"step_minimum_ns", "Minimum", CELL_TIME},
    [HIGH] = {"step_maximum_ns", "Maximum", CELL_TIME},
    [TOKENS] = {"tokens_per_s", "Tokens/s", CELL_COUNT},
    [FORWARD] = {"forward_ns", "Forward", CELL_TIME},
    [BACKWARD] = {"backward_ns", "Backward", CELL_TIME},
    [OPTIMIZER] = {"optimizer_ns", "Optimizer", CELL_TIME},
    [IDLE] = {"idle_share", "Idle", CELL_SHARE},
    [LAUNCHES] = {"launches", "Launches", CELL_COUNT},
    [MFU] = {"mfu", "MFU", CELL_SHARE},
    [PEAK] = {"peak_bytes", "Peak memory", CELL_BYTES},
    [OVERHEAD] = {"overhead_share", "Tracing costs", CELL_SHARE},
    [AUDIT] = {"audit", "Audit", CELL_TEXT},
};

void sweep_suffix(int64_t batch, int64_t seq, char suffix[SWEEP_SUFFIX_BYTES]) {
    snprintf(suffix, SWEEP_SUFFIX_BYTES, "_bs%" PRId64 "_seq%" PRId64, batch, seq);
}

Table sweep_table(void) {
    return table_make("sweep", "Sizes side by side: steps with tracing off, operations with tracing on",
                      columns, sizeof columns / sizeof *columns);
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double pass_ns(const BundlePath *path, const char *pass) {
    double ns = 0;
    for (int i = 0; i < path->row_count; i++)
        if (strcmp(path->rows[i].pass, pass) == 0) ns += path->rows[i].ns;
    return ns;
}

static Status add_path(Table *table, const Bundle *bundle, const BundlePath *path) {
    char audit[64];
    snprintf(audit, sizeof audit, "%d of %d passed", path->audited - path->failed, path->audited);
    double idle = 1 - share(path->device_ns, 1e6 * path->step_ms);
    TRY(table_add_row(table));
    TRY(table_set_text(table, PATH, path->label));
    TRY(table_set_text(table, AUDIT, audit));
    table_set(table, BATCH, (double)bundle->batch);
    table_set(table, SEQ, (double)bundle->seq);
    table_set(table, STEP, 1e6 * path->step_ms);
    table_set(table, LOW, 1e6 * path->low_ms);
    table_set(table, HIGH, 1e6 * path->high_ms);
    table_set(table, TOKENS, share(1e3 * path->tokens, path->step_ms));
    table_set(table, FORWARD, pass_ns(path, "forward"));
    table_set(table, BACKWARD, pass_ns(path, "backward"));
    table_set(table, OPTIMIZER, pass_ns(path, "update"));
    table_set(table, IDLE, idle > 0 ? idle : 0);
    table_set(table, LAUNCHES, path->launches);
    table_set(table, MFU, share(share(path->flops, 1e-3 * path->step_ms), bundle->peak_flops));
    table_set(table, PEAK, path->peak_bytes);
    table_set(table, OVERHEAD, path->overhead);
    return OK;
}

Status sweep_add(Table *table, const char *folder, int64_t batch, int64_t seq) {
    char suffix[SWEEP_SUFFIX_BYTES], name[128], *path = NULL;
    Bundle bundle;
    sweep_suffix(batch, seq, suffix);
    snprintf(name, sizeof name, "profiling_stats%s.json", suffix);
    path = path_join(folder, name);
    Status status = bundle_read(path, &bundle);
    memory_free(path);
    TRY(status);
    if (!table->rows)
        status = table_note(table, "%s, %s, on %s; records from: %s", bundle.model, bundle.dtype,
                            bundle.device, bundle.paths[0].source);
    for (int i = 0; i < bundle.path_count && !status; i++)
        status = add_path(table, &bundle, &bundle.paths[i]);
    bundle_free(&bundle);
    return status;
}

typedef enum { MARKDOWN, CSV } Layout;

static Status write_file(const Table *table, const TableView *view, const char *folder, const char *name,
                         Layout layout) {
    char *text = NULL, *path = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return fail(ERROR_MEMORY, "out of host memory for %s", name);
    if (layout == MARKDOWN)
        table_print_markdown(table, view, memory);
    else
        table_print_csv(table, memory);
    Status status = fclose(memory) == 0 ? OK : fail(ERROR_MEMORY, "out of host memory for %s", name);
    path = path_join(folder, name);
    if (!status) status = file_write(path, text, (int64_t)length);
    memory_free(path);
    free(text); // the C library's own
    return status;
}

Status sweep_write(const Table *table, const TableView *view, const char *folder, FILE *file) {
    if (file) table_print_text(table, view, file);
    TRY(write_file(table, view, folder, "sweep.md", MARKDOWN));
    return write_file(table, view, folder, "sweep.csv", CSV);
}
