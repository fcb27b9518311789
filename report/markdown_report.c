#include "report/markdown_report.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/stats.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { KERNELS_LISTED = 15, NAME_BYTES = 160 };

static void print_head(const Profile *p, FILE *file) {
    const TraceRun *r = &p->paths[0].trace->run;
    fprintf(file, "# Profile of %s: %s%s%s, batch %" PRId64 ", seq %" PRId64 ", %s\n\n", r->model, r->program,
            *r->step ? ", " : "", r->step, r->batch, r->seq, r->dtype);
    fprintf(file, "On %s with %s.\n", r->device, r->library);
    for (int i = 0; i < p->count; i++) {
        const TraceRun *run = &p->paths[i].trace->run;
        fprintf(file, "Source, %s: %s%s%s; %s.\n", p->paths[i].label, source_name(run->source),
                *run->source_note ? ": " : "", run->source_note, run->window);
        if (run->cores_waited > CORES_SHARED)
            fprintf(file, "\n**%s, %s.**\n\n", p->paths[i].label, cores_warning(run->cores_waited).text);
    }
    fprintf(file,
            "\n| path | median step | range | %s/s | launches | peak memory | tracing costs | attributed "
            "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
            trace_unit(r));
    for (int i = 0; i < p->count; i++) {
        const Figures *f = &p->paths[i].figures;
        fprintf(file, "| %s | %.3f ms, tracing %s | %.3f to %.3f | %.0f | %.0f | %s |", p->paths[i].label,
                f->step_ms, f->timed ? "off" : "on", f->low, f->high, ratio(1e3 * f->tokens, f->step_ms),
                f->launches, in_words(CELL_BYTES, (double)f->peak_bytes).text);
        if (f->timed)
            fprintf(file, " %+.2f%%%s |", 100 * f->overhead, f->overhead_noise ? ", within noise" : "");
        else
            fprintf(file, " not known |");
        fprintf(file, " %.2f%% |\n", 100 * ratio(f->covered_ns, f->step_ns));
    }
}

static void print_phases(const ProfilePath *path, FILE *file) {
    const Figures *f = &path->figures;
    fprintf(file,
            "\n## The step by phase and category: %s, mean of the traced steps\n\n| phase | time | share |",
            path->label);
    double totals[CATEGORY_COUNT] = {0};
    for (int p = 0; p < PHASE_COUNT; p++)
        for (int c = 0; c < CATEGORY_COUNT; c++) totals[c] += f->phases[p].categories[c];
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (totals[c] > 0) fprintf(file, " %s |", category_name((Category)c));
    fprintf(file, "\n|---|---:|---:|");
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (totals[c] > 0) fprintf(file, "---:|");
    for (int p = 0; p < PHASE_COUNT; p++) {
        const PhaseRow *row = &f->phases[p];
        if (row->ns <= 0) continue;
        fprintf(file, "\n| %s | %s | %.1f%% |", phase_name((Phase)p), in_words(CELL_TIME, row->ns).text,
                100 * ratio(row->ns, f->step_ns));
        for (int c = 0; c < CATEGORY_COUNT; c++)
            if (totals[c] > 0) fprintf(file, " %.1f%% |", 100 * ratio(row->categories[c], row->ns));
    }
    fprintf(file, "\n");
}

static void print_operations(const Profile *profile, const ProfilePath *path, FILE *file) {
    const Figures *f = &path->figures;
    const Peaks *peaks = trace_limits(&path->trace->run);
    double total = figures_pass_ns(f, PASS_COUNT);
    fprintf(file,
            "\n## Operations: %s, mean of the traced steps\n\n| operation | pass | form | time | share | "
            "launches | TFLOP/s | TB/s | "
            "of the limit "
            "| limit |%s\n|---|---|---|---:|---:|---:|---:|---:|---:|---|%s\n",
            path->label, profile->count > 1 ? " difference |" : "", profile->count > 1 ? "---:|" : "");
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        fprintf(file, "| %s | %s | %s | %s | %.1f%% | %.0f | %.2f | %.3f |", r->call, pass_name(r->pass),
                form_name(r->form), in_words(CELL_TIME, r->ns).text, 100 * ratio(r->ns, total), r->launches,
                1e-3 * ratio(r->work.flops, r->ns), 1e-3 * ratio(r->work.bytes, r->ns));
        if (peaks_known(peaks))
            fprintf(file, " %.1f%% | %s |", 100 * limit_share(peaks, r->work, r->ns),
                    limit_name(peaks, r->work));
        else
            fprintf(file, " - | - |");
        const Difference *d = profile->count > 1 ? profile_difference(profile, r) : NULL;
        if (d && isfinite(d->difference))
            fprintf(file, " %.1e |", d->difference);
        else if (profile->count > 1)
            fprintf(file, " - |");
        fprintf(file, "\n");
    }
}

static int longer(const void *a, const void *b) {
    double x = (*(const KernelRow *const *)a)->all.ns, y = (*(const KernelRow *const *)b)->all.ns;
    return (x < y) - (x > y);
}

static void print_kernels(const ProfilePath *path, FILE *file) {
    const Figures *f = &path->figures;
    const KernelRow **sorted = memory_array((size_t)f->kernel_count + 1, sizeof *sorted);
    for (int64_t i = 0; i < f->kernel_count; i++) sorted[i] = &f->kernels[i];
    qsort(sorted, (size_t)f->kernel_count, sizeof *sorted, longer);
    fprintf(file,
            "\n## Kernels that take the most time: %s\n\n| kernel | served | calls | time | each | share "
            "|\n|---|---|---:|---:|---:|---:|\n",
            path->label);
    for (int64_t i = 0; i < f->kernel_count && i < KERNELS_LISTED; i++) {
        const KernelRow *k = sorted[i];
        fprintf(file, "| ");
        markdown_print(k->label, NAME_BYTES, file);
        fprintf(file, " | %s | %.0f | %s | %s | %.1f%% |\n", k->call ? k->call : "", k->all.calls,
                in_words(CELL_TIME, k->all.ns).text, in_words(CELL_TIME, ratio(k->all.ns, k->all.calls)).text,
                100 * ratio(k->all.ns, f->device_ns));
    }
    memory_free(sorted);
}

static void print_answers(const Answers *answers, FILE *file) {
    fprintf(file, "\n## Seven questions\n");
    for (int i = 0; i < QUESTION_COUNT; i++) {
        const Answer *a = &answers->answers[i];
        fprintf(file, "\n%d. %s\n", i + 1, a->question);
        for (int64_t k = 0; k < a->count; k++) {
            fprintf(file, "   - ");
            markdown_print(a->lines[k], INT_MAX, file);
            fprintf(file, "\n");
        }
    }
}

void markdown_report_print(const Profile *p, const Answers *answers, FILE *file) {
    print_head(p, file);
    for (int i = 0; i < p->count; i++) print_phases(&p->paths[i], file);
    for (int i = 0; i < p->count; i++) print_operations(p, &p->paths[i], file);
    for (int i = 0; i < p->count; i++) print_kernels(&p->paths[i], file);
    print_answers(answers, file);
    fprintf(file, "\n## The profile, audited\n\n");
    for (int i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->paths[i].trace->finding_count; k++) {
            const TraceFinding *finding = &p->paths[i].trace->findings[k];
            fprintf(file, "- %s %s: %s: %s\n", finding->passed ? "passed" : "**FAILED**", p->paths[i].label,
                    finding->name, finding->detail);
        }
}
