#include "report/sweep.h"

#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"
#include "report/bundle_schema.h"
#include "base/stats.h"
#include "report/sweep_page.h"
#include "report/text_file.h"

#include <inttypes.h>
#include <string.h>

/* In order of importance, because a narrow terminal omits the last ones. */
enum {
    BATCH,
    SEQ,
    PATH,
    STEP,
    TOKENS,
    MFU,
    PEAK,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    LOW,
    HIGH,
    IDLE,
    LAUNCHES,
    OVERHEAD,
    WAITED,
    AUDIT,
};

static const TableColumn columns[] = {
    [BATCH] = {"batch", "Batch", CELL_COUNT},
    [SEQ] = {"seq", "Seq", CELL_COUNT},
    [PATH] = {"path", "Path", CELL_TEXT},
    [STEP] = {"step_ns", "Median step", CELL_TIME},
    [TOKENS] = {"tokens_per_s", "Tokens/s", CELL_COUNT},
    [MFU] = {"mfu", "MFU", CELL_SHARE},
    [PEAK] = {"peak_bytes", "Memory in use", CELL_BYTES},
    [FORWARD] = {"forward_ns", "Forward", CELL_TIME},
    [BACKWARD] = {"backward_ns", "Backward", CELL_TIME},
    [OPTIMIZER] = {"optimizer_ns", "Optimizer", CELL_TIME},
    [LOW] = {"step_minimum_ns", "Minimum", CELL_TIME},
    [HIGH] = {"step_maximum_ns", "Maximum", CELL_TIME},
    [IDLE] = {"idle_share", "Idle", CELL_SHARE},
    [LAUNCHES] = {"launches", "Launches", CELL_COUNT},
    [OVERHEAD] = {"overhead_share", "Tracing costs", CELL_SHARE},
    [WAITED] = {"cores_waited", "Waited for cores", CELL_SHARE},
    [AUDIT] = {"audit", "Audit", CELL_TEXT},
};

void sweep_suffix(int64_t batch, int64_t seq, char suffix[SWEEP_SUFFIX_BYTES]) {
    snprintf(suffix, SWEEP_SUFFIX_BYTES, "_bs%" PRId64 "_seq%" PRId64, batch, seq);
}

Table sweep_table(void) {
    return TABLE("sweep", "Sizes side by side: steps with tracing off, operations with tracing on", columns);
}

static double pass_ns(const BundlePath *path, Pass pass) {
    double ns = 0;
    for (int64_t i = 0; i < path->rows_count; i++)
        if (path->rows[i].pass == pass) ns += path->rows[i].ns;
    return ns;
}

static void add_path(Table *table, const Bundle *bundle, const BundlePath *path, int64_t seq) {
    const BundleStep *step = &path->step;
    char audit[64];
    int64_t passed = 0;
    double flops = 0, idle = 1 - ratio(step->device, step->traced); // both are measured with tracing on
    const char *length = seq != bundle->run.seq ? "side" : "seq";
    for (int64_t i = 0; i < path->audit_count; i++) passed += path->audit[i].passed;
    for (int64_t i = 0; i < path->rows_count; i++) flops += path->rows[i].work.needed;
    snprintf(audit, sizeof audit, "%" PRId64 " of %" PRId64 " passed", passed, path->audit_count);
    table_add_row(table);
    table_set_text(table, PATH, path->label);
    table_set_text(table, AUDIT, audit);
    table_set(table, BATCH, (double)bundle->run.batch);
    table_set(table, SEQ, (double)seq);
    table_set(table, STEP, step->ns);
    table_set(table, LOW, step->low);
    table_set(table, HIGH, step->high);
    table_set(table, TOKENS, 1e9 * ratio(step->tokens, step->ns));
    table_set(table, FORWARD, pass_ns(path, PASS_FORWARD));
    table_set(table, BACKWARD, pass_ns(path, PASS_BACKWARD));
    table_set(table, OPTIMIZER, pass_ns(path, PASS_UPDATE));
    table_set(table, IDLE, idle > 0 ? idle : 0);
    table_set(table, LAUNCHES, step->launches);
    table_set(table, MFU,
              mfu_of(1e9 * ratio(flops, step->ns), bundle->run.sheet.flops, bundle->run.measured.flops,
                     step->cores_waited)
                  .share);
    table_set(table, PEAK, (double)path->peak_bytes);
    if (step->timed && !step->overhead_noise) table_set(table, OVERHEAD, step->overhead);
    table_set(table, WAITED, step->cores_waited);
    if (step->cores_waited > CORES_SHARED)
        table_note(table, "batch %" PRId64 ", %s %" PRId64 ", %s: %s", bundle->run.batch, length, seq,
                   path->label, cores_warning(step->cores_waited).text);
    if (passed < path->audit_count)
        table_note(table, "batch %" PRId64 ", %s %" PRId64 ", %s: the audit fails: %s", bundle->run.batch,
                   length, seq, path->label, audit);
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
        table_note(table, "%s, %s, on %s; records from: %s", bundle.run.model, bundle.run.dtype,
                   bundle.run.device, bundle.paths[0].source);
    if (!table->rows && strcmp(trace_unit(&bundle.run), "tokens") != 0)
        table_note(table, "Tokens/s counts %s%s", trace_unit(&bundle.run),
                   seq != bundle.run.seq ? ", and Seq is a picture's side" : "");
    for (int64_t i = 0; i < bundle.paths_count; i++) add_path(table, &bundle, &bundle.paths[i], seq);
    bundle_free(&bundle);
    return OK;
}

Status sweep_write(const Table *table, const TableView *view, const char *folder, FILE *file) {
    TextFile text;
    if (file) table_print_text(table, view, file);
    TRY(text_file_open(&text));
    table_print_markdown(table, view, text.file);
    TRY(text_file_save(&text, folder, "sweep.md"));
    TRY(text_file_open(&text));
    table_print_csv(table, text.file);
    TRY(text_file_save(&text, folder, "sweep.csv"));
    static const int charts[] = {STEP, TOKENS, MFU, PEAK};
    TRY(text_file_open(&text));
    sweep_page_print(table, PATH + 1, charts, sizeof charts / sizeof *charts, text.file);
    return text_file_save(&text, folder, "sweep.html");
}
