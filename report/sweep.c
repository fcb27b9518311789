#include "report/sweep.h"

#include "base/cores.h"
#include "base/files.h"
#include "base/memory.h"
#include "report/bundle_schema.h"
#include "base/stats.h"
#include "report/page.h"
#include "report/text_file.h"

#include <inttypes.h>
#include <math.h>
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
    char suffix[SWEEP_SUFFIX_BYTES], name[128];
    CLOSED_BY(bundle_free) Bundle bundle = {0};
    sweep_suffix(batch, seq, suffix);
    snprintf(name, sizeof name, "profiling_stats%s.json", suffix);
    OWNED char *path = path_join(folder, name);
    TRY(bundle_read(path, &bundle));
    if (!table->rows)
        table_note(table, "%s, %s, on %s; records from: %s", bundle.run.model, bundle.run.dtype,
                   bundle.run.device, bundle.paths[0].source);
    if (!table->rows && strcmp(trace_unit(&bundle.run), "tokens") != 0)
        table_note(table, "Tokens/s counts %s%s", trace_unit(&bundle.run),
                   seq != bundle.run.seq ? ", and Seq is a picture's side" : "");
    for (int64_t i = 0; i < bundle.paths_count; i++) add_path(table, &bundle, &bundle.paths[i], seq);
    return OK;
}

/* ---- the page of charts ---- */

INCLUDED(sweep_style, "style.css")

enum { LEFT = 170, BAR = 460, WIDTH = 760, ROW = 22 }; // sizes of a chart, in its own units

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<title>fusebox: sizes side by side</title>\n<style>\n";

/* Goes after the style of a profile's page. */
static const char page_body[] = "rect { fill: var(--matrix); }\n</style>\n</head>\n<body>\n";

static void put_html(const char *text, FILE *file) {
    for (; *text; text++)
        if (*text == '<' || *text == '&' || *text == '>')
            fprintf(file, "&#%d;", *text);
        else
            fputc(*text, file);
}

static void put_cell(const Table *t, int64_t row, int column, FILE *file) {
    const Cell *cell = &t->cells[row * t->column_count + column];
    char text[CELL_TEXT_BYTES];
    if (t->columns[column].kind == CELL_TEXT) {
        put_html(cell->text ? cell->text : "", file);
        return;
    }
    if (!isfinite(cell->number)) return;
    cell_format(t->columns[column].kind, cell->number, UNIT_AUTO, text);
    put_html(text, file);
}

static void print_chart(const Table *t, int names, int column, FILE *file) {
    double most = 0;
    for (int64_t row = 0; row < t->rows; row++) {
        double number = t->cells[row * t->column_count + column].number;
        if (isfinite(number)) most = fmax(most, number);
    }
    if (!(most > 0)) return; // the column is unknown in every row
    fprintf(file, "<h2>");
    put_html(t->columns[column].title, file);
    fprintf(file, "</h2>\n<section><svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, (int)t->rows * ROW);
    for (int64_t row = 0; row < t->rows; row++) {
        double number = t->cells[row * t->column_count + column].number, y = (double)row * ROW;
        double width = isfinite(number) ? BAR * number / most : 0;
        fprintf(file, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LEFT - 8, y + 15);
        for (int i = 0; i < names; i++) {
            if (i) fprintf(file, i == 1 ? " x " : ", ");
            put_cell(t, row, i, file);
        }
        fprintf(file,
                "</text><rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" y=\"%.0f\">",
                LEFT, y + 3, width, ROW - 6, LEFT + width + 6, y + 15);
        put_cell(t, row, column, file);
        fprintf(file, "</text>\n");
    }
    fprintf(file, "</svg></section>\n");
}

/* A chart for each of these columns, with a bar per row, labelled by the first `names` columns; then the
 * table. */
static void print_page(const Table *t, int names, const int *charts, int count, FILE *file) {
    fputs(page_head, file);
    fputs(sweep_style, file);
    fputs(page_body, file);
    fprintf(file, "<h1>Sizes side by side</h1>\n");
    for (int64_t i = 0; i < t->note_count; i++) {
        fprintf(file, "<p class=\"note\">");
        put_html(t->notes[i], file);
        fprintf(file, "</p>\n");
    }
    for (int i = 0; i < count; i++) print_chart(t, names, charts[i], file);
    fprintf(file, "<h2>All figures</h2>\n<div class=\"scroll\"><table><tr>");
    for (int i = 0; i < t->column_count; i++) {
        fprintf(file, "<th>");
        put_html(t->columns[i].title, file);
        fprintf(file, "</th>");
    }
    for (int64_t row = 0; row < t->rows; row++) {
        fprintf(file, "</tr>\n<tr>");
        for (int i = 0; i < t->column_count; i++) {
            fprintf(file, "<td>");
            put_cell(t, row, i, file);
            fprintf(file, "</td>");
        }
    }
    fprintf(file, "</tr></table></div>\n</body>\n</html>\n");
}

/* ---- files ---- */

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
    print_page(table, PATH + 1, charts, sizeof charts / sizeof *charts, text.file);
    return text_file_save(&text, folder, "sweep.html");
}
