#include "report/markdown_report.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/stats.h"
#include "report/anatomy.h"
#include "report/provenance.h"
#include "report/table.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS_LISTED = 10, NAME_BYTES = 160, KERNELS_OF_A_NAME = 4 };

static void print_head(const Bundle *b, FILE *file) {
    const TraceRun *r = &b->run;
    const char *what = bundle_step_name(&b->paths[0]);
    fprintf(file, "# Profile of %s: %s%s%s, batch %" PRId64 ", seq %" PRId64 ", %s\n\n", r->model, r->program,
            *what ? ", " : "", what, r->batch, r->seq, r->dtype);
    fprintf(file, "On %s with %s.\n", r->device, r->library);
    if (r->command && *r->command)
        fprintf(file, "By `%s`, %s, %s UTC, %s.\n", r->command, r->version, r->date, r->host);
    for (int64_t i = 0; i < b->paths_count; i++) {
        const BundlePath *path = &b->paths[i];
        fprintf(file, "Source, %s: %s%s%s; %s.\n", path->label, path->source, *path->source_note ? ": " : "",
                path->source_note, path->window);
        if (path->step.cores_waited > CORES_SHARED)
            fprintf(file, "\n**%s, %s.**\n\n", path->label, cores_warning(path->step.cores_waited).text);
    }
    fprintf(file,
            "\n| path | median step | range | %s/s | launches | memory in use | tracing costs | attributed "
            "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
            trace_unit(r));
    for (int64_t i = 0; i < b->paths_count; i++) {
        const BundleStep *step = &b->paths[i].step;
        fprintf(file, "| %s | %.3f ms, tracing %s | %.3f to %.3f | %.0f | %.0f | %s |", b->paths[i].label,
                1e-6 * step->ns, step->timed > 0 ? "off" : "on", 1e-6 * step->low, 1e-6 * step->high,
                ratio(1e9 * step->tokens, step->ns), step->launches,
                in_words(CELL_BYTES, (double)b->paths[i].peak_bytes).text);
        if (step->timed > 0 && !step->overhead_noise)
            fprintf(file, " %+.2f%% |", 100 * step->overhead);
        else
            fprintf(file, " not known%s |", step->overhead_noise ? ", within noise" : "");
        fprintf(file, " %.2f%% |\n", 100 * step->covered);
    }
}

/* The time of a category in a phase; 0 if it does not occur. */
static double category_ns(const BundlePhase *phase, const char *category) {
    for (int64_t i = 0; i < phase->categories_count; i++)
        if (strcmp(phase->categories[i].category, category) == 0) return phase->categories[i].ns;
    return 0;
}

static void print_phases(const BundlePath *path, FILE *file) {
    fprintf(file,
            "\n## The step by phase and category: %s, mean of the traced steps\n\n| phase | time | share |",
            path->label);
    double totals[CATEGORY_COUNT] = {0};
    for (int64_t p = 0; p < path->phases_count; p++)
        for (int c = 0; c < CATEGORY_COUNT; c++) totals[c] += category_ns(&path->phases[p], category_name(c));
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (totals[c] > 0) fprintf(file, " %s |", category_name(c));
    fprintf(file, "\n|---|---:|---:|");
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (totals[c] > 0) fprintf(file, "---:|");
    for (int64_t p = 0; p < path->phases_count; p++) {
        const BundlePhase *row = &path->phases[p];
        fprintf(file, "\n| %s | %s | %.1f%% |", row->phase, in_words(CELL_TIME, row->ns).text,
                100 * ratio(row->ns, path->step.traced));
        for (int c = 0; c < CATEGORY_COUNT; c++)
            if (totals[c] > 0)
                fprintf(file, " %.1f%% |", 100 * ratio(category_ns(row, category_name(c)), row->ns));
    }
    fprintf(file, "\n");
}

static void print_operations(const Bundle *b, const BundlePath *path, FILE *file) {
    const Peaks *peaks = trace_limits(&b->run);
    double total = 0;
    for (int64_t i = 0; i < path->rows_count; i++) total += path->rows[i].ns;
    fprintf(file,
            "\n## Operations: %s, mean of the traced steps\n\n| operation | pass | form | time | share | "
            "launches | arithmetic | bandwidth | "
            "of the limit "
            "| limit |%s\n|---|---|---|---:|---:|---:|---:|---:|---:|---|%s\n",
            path->label, b->paths_count > 1 ? " difference |" : "", b->paths_count > 1 ? "---:|" : "");
    for (int64_t i = 0; i < path->rows_count; i++) {
        const OperationRow *r = &path->rows[i];
        fprintf(file, "| %s | %s | %s | %s | %.1f%% | %.0f | %s | %s |", r->call, pass_name(r->pass),
                form_name(r->form), in_words(CELL_TIME, r->ns).text, 100 * ratio(r->ns, total), r->launches,
                in_words(CELL_FLOP_RATE, 1e9 * ratio(r->work.flops, r->ns)).text,
                in_words(CELL_BYTE_RATE, 1e9 * ratio(r->work.bytes, r->ns)).text);
        if (peaks_known(peaks))
            fprintf(file, " %.1f%% | %s |", 100 * r->share_of_limit, r->limit);
        else
            fprintf(file, " - | - |");
        const Difference *d =
            difference_find(b->differences, b->differences_count, r->call, r->operation, r->pass);
        if (b->paths_count > 1 && d && isfinite(d->difference))
            fprintf(file, " %.1e |", d->difference);
        else if (b->paths_count > 1)
            fprintf(file, " - |");
        fprintf(file, "\n");
    }
}

/* Use of the kernel over all passes, per step. */
static KernelUse use_of(const KernelRow *k) {
    KernelUse all = {0, 0};
    for (int pass = 0; pass < PASS_COUNT; pass++) {
        all.ns += k->in[pass].ns;
        all.calls += k->in[pass].calls;
    }
    return all;
}

static int longer(const void *a, const void *b) {
    double x = use_of(*(const KernelRow *const *)a).ns, y = use_of(*(const KernelRow *const *)b).ns;
    return (x < y) - (x > y);
}

/* How the kernel was launched, if the table of kernels has it. */
static void print_launch(const BundlePath *path, const KernelRow *k, FILE *file) {
    static const char *const keys[] = {"grid", "block", "registers", "shared_bytes", "occupancy"};
    for (int64_t i = 0; i < path->tables_count; i++) {
        const Table *table = &path->tables[i];
        if (strcmp(table->key, "kernels") != 0 || table_column(table, "grid") < 0) continue;
        for (int64_t row = 0; row < table->rows; row++) {
            const Cell *cells = &table->cells[row * table->column_count];
            const char *name = k->label ? k->label : k->name;
            if (!cells[0].text || strcmp(cells[0].text, name) != 0) continue;
            for (int c = 0; c < 5; c++) {
                int column = table_column(table, keys[c]);
                const Cell *cell = column < 0 ? NULL : &cells[column];
                if (cell && cell->text && *cell->text)
                    fprintf(file, "- %s: %s\n", table->columns[column].title, cell->text);
                else if (cell && isfinite(cell->number))
                    fprintf(file, "- %s: %s\n", table->columns[column].title,
                            in_words(table->columns[column].kind, cell->number).text);
            }
            return;
        }
    }
}

/* The anatomy of the kernel, or of every kernel with its name. */
static void print_anatomy(const KernelRow *k, const char *source, FILE *file) {
    const Anatomy *found[KERNELS_OF_A_NAME];
    int count = anatomy_find(k->name, source, found, KERNELS_OF_A_NAME);
    for (int i = 0; i < count; i++) {
        fprintf(file, "- %s: %s:%d\n", count > 1 ? "Kernel, one of this name" : "Kernel", found[i]->file,
                found[i]->line);
        for (int part = 0; part < ANATOMY_PARTS; part++)
            fprintf(file, "  - %s: %s\n", anatomy_part_name(part), found[i]->parts[part]);
    }
}

static void print_kernel(const BundlePath *path, const KernelRow *k, int chapter, int64_t number,
                         FILE *file) {
    const KernelUse all = use_of(k);
    const char *source = k->source ? k->source : "";
    fprintf(file, "\n### %d.%" PRId64 " ", chapter, number);
    markdown_print(k->label ? k->label : k->name, NAME_BYTES, file);
    fprintf(file,
            "\n\n- Time: %s of a step, %.1f%% of the device's\n- Calls: %.0f, %s each\n- Category: %s\n",
            in_words(CELL_TIME, all.ns).text, 100 * ratio(all.ns, path->step.device), all.calls,
            in_words(CELL_TIME, ratio(all.ns, all.calls)).text,
            (int)k->category >= 0 ? category_name(k->category) : "not known");
    if (k->call && *k->call) fprintf(file, "- Serves: %s\n", k->call);
    if (k->shapes && *k->shapes) fprintf(file, "- Shapes: %s\n", k->shapes);
    if (*source) fprintf(file, "- Implemented: %s\n", source);
    if (k->decoded && *k->decoded) fprintf(file, "- Encoded in its name: %s\n", k->decoded);
    print_launch(path, k, file);
    print_anatomy(k, source, file);
}

/* Guides look for "### 4.1" and following: the chapter of the first path is the fourth. */
static void print_kernels(const BundlePath *path, int chapter, FILE *file) {
    OWNED const KernelRow **sorted = memory_array((size_t)path->kernels_count + 1, sizeof *sorted);
    for (int64_t i = 0; i < path->kernels_count; i++) sorted[i] = &path->kernels[i];
    qsort(sorted, (size_t)path->kernels_count, sizeof *sorted, longer);
    fprintf(file, "\n## %d. Kernels that take the most time: %s\n", chapter, path->label);
    for (int64_t i = 0; i < path->kernels_count && i < KERNELS_LISTED; i++)
        print_kernel(path, sorted[i], chapter, i + 1, file);
}

static void print_answers(const Bundle *b, FILE *file) {
    fprintf(file, "\n## Seven questions\n");
    for (int64_t i = 0; i < b->answers_count; i++) {
        const Answer *a = &b->answers[i];
        fprintf(file, "\n%d. %s\n", (int)i + 1, a->question);
        for (int64_t k = 0; k < a->count; k++) {
            fprintf(file, "   - ");
            markdown_print(a->lines[k], INT_MAX, file);
            fprintf(file, "\n");
        }
    }
}

void markdown_report_print(const Bundle *b, FILE *file) {
    print_head(b, file);
    for (int64_t i = 0; i < b->paths_count; i++) print_phases(&b->paths[i], file);
    for (int64_t i = 0; i < b->paths_count; i++) print_operations(b, &b->paths[i], file);
    for (int64_t i = 0; i < b->paths_count; i++) print_kernels(&b->paths[i], 4 + (int)i, file);
    print_answers(b, file);
    fprintf(file, "\n## The profile, audited\n\n");
    for (int64_t i = 0; i < b->paths_count; i++)
        for (int64_t k = 0; k < b->paths[i].audit_count; k++) {
            const TraceFinding *finding = &b->paths[i].audit[k];
            fprintf(file, "- %s %s: %s: %s\n", finding->passed ? "passed" : "**FAILED**", b->paths[i].label,
                    finding->name, finding->detail);
        }
    fprintf(file, "\n");
    Table provenance = table_provenance(&b->run);
    table_print_markdown(&provenance, &(TableView){.full_names = true}, file);
    table_free(&provenance);
}
