#include "profile/brief.h"

#include "base/cores.h"
#include "base/memory.h"
#include "report/questions.h"
#include "base/stats.h"
#include "base/wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 9, HOTTEST = 5, TEXT_BYTES = 1024 };

static void print_line(const char *heading, int width, int lines, FILE *file, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void print_line(const char *heading, int width, int lines, FILE *file, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_wrapped(heading, INDENT, text, width, lines, file);
}

static void print_run(const Profile *p, int width, FILE *file) {
    const TraceRun *r = &p->paths[0].trace->run;
    double waited = 0;
    for (int i = 0; i < p->count; i++)
        if (p->paths[i].trace->run.cores_waited > waited) waited = p->paths[i].trace->run.cores_waited;
    print_line("profile", width, 3, file, "%s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s%s%s; %s%s%s",
               r->model, r->batch, r->seq, r->dtype, r->device, *r->source_note ? "; " : "", r->source_note,
               r->step, *r->step ? ", " : "", r->window);
    if (waited > CORES_SHARED)
        print_line("", width, 1, file, "CORES SHARED: threads waited %.0f%% of the time; do not trust this",
                   100 * waited);
}

/* "8.123 ms, median of 5 with tracing off (8.000 to 8.500)"; a single step has neither median nor range. */
static void print_step(const ProfilePath *path, int width, FILE *file) {
    const Figures *f = &path->figures;
    double flops = 0;
    char mfu[48] = "", sample[40] = "one step", range[80] = "";
    const int64_t steps = f->timed ? f->timed : f->steps;
    if (steps > 1) snprintf(sample, sizeof sample, "median of %" PRId64, steps);
    if (steps > 1) snprintf(range, sizeof range, " (%.3f to %.3f)", f->low, f->high);
    for (int64_t i = 0; i < f->row_count; i++) flops += f->rows[i].work.needed;
    const TraceRun *r = &path->trace->run;
    const Mfu share =
        mfu_of(1e3 * ratio(flops, f->step_ms), r->sheet.flops, r->measured.flops, r->cores_waited);
    if (!isnan(share.share)) snprintf(mfu, sizeof mfu, ", MFU %.1f%% of the %s", 100 * share.share, share.of);
    print_line(path->label, width, 2, file, "%.3f ms, %s with tracing %s%s, %.0f %s/s%s, %s in use",
               f->step_ms, sample, f->timed ? "off" : "on", range, ratio(1e3 * f->tokens, f->step_ms),
               trace_unit(&path->trace->run), mfu, in_words(CELL_BYTES, (double)f->peak_bytes).text);
}

static void print_phases(const ProfilePath *path, int width, FILE *file) {
    const Figures *f = &path->figures;
    char text[TEXT_BYTES] = "";
    for (int p = 0; p < PHASE_COUNT; p++) {
        size_t used = strlen(text);
        if (f->phases[p].ns > 0.0005 * f->step_ns)
            snprintf(text + used, sizeof text - used, "%s%s %.1f%%", used ? ", " : "", phase_name(p),
                     100 * ratio(f->phases[p].ns, f->step_ns));
    }
    print_wrapped("", INDENT, text, width, 1, file);
}

/* ---- operations ---- */

static int longer(const void *a, const void *b) {
    const OperationRow *x = *(const OperationRow *const *)a, *y = *(const OperationRow *const *)b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_row(const Profile *p, const OperationRow *row, int name_width, FILE *file) {
    char name[LABEL_BYTES];
    snprintf(name, sizeof name, "%s %s", row->call, pass_name(row->pass));
    fprintf(file, "%-*s%-*.*s", INDENT, "", name_width, name_width, name);
    for (int i = 0; i < p->count; i++) {
        const Figures *f = &p->paths[i].figures;
        const OperationRow *r = figures_find(f, row->call, row->operation, row->pass);
        fprintf(file, " %11s %5.1f%%", r ? in_words(CELL_TIME, r->ns).text : "-",
                r ? 100 * ratio(r->ns, figures_pass_ns(f, PASS_COUNT)) : 0);
    }
    fprintf(file, "\n");
}

/* Lists the last path's hottest operations; with two paths that is the fused one. */
static void print_hottest(const Profile *p, int width, FILE *file) {
    const Figures *f = &p->paths[p->count - 1].figures;
    OWNED const OperationRow **rows = memory_array((size_t)f->row_count + 1, sizeof *rows);
    int name_width = width - INDENT - 19 * p->count;
    for (int64_t i = 0; i < f->row_count; i++) rows[i] = &f->rows[i];
    qsort(rows, (size_t)f->row_count, sizeof *rows, longer);
    fprintf(file, "%-*s%-*.*s", INDENT, "longest", name_width, name_width, "operation, tracing on");
    for (int i = 0; i < p->count; i++) fprintf(file, " %18s", p->paths[i].label);
    fprintf(file, "\n");
    for (int64_t i = 0; i < f->row_count && i < HOTTEST; i++) print_row(p, rows[i], name_width, file);
}

/* ---- what binds the step, and the audit ---- */

static void print_bound(const Profile *p, const ProfilePath *path, const char *heading, int width,
                        FILE *file) {
    Answer answer = {0};
    question_bound(p, path, &answer);
    if (answer.count) print_wrapped(heading, INDENT, answer.lines[0], width, 2, file);
    for (int64_t i = 0; i < answer.count; i++) memory_free(answer.lines[i]);
    memory_free(answer.lines);
}

static void print_audit(const ProfilePath *path, const char *heading, int width, FILE *file) {
    const Trace *t = path->trace;
    const TraceFinding *failed = NULL;
    int64_t passed = 0;
    for (int64_t i = 0; i < t->finding_count; i++) {
        passed += t->findings[i].passed;
        if (!t->findings[i].passed && !failed) failed = &t->findings[i];
    }
    print_line(heading, width, 2, file, "%s: %" PRId64 " of %" PRId64 " passed%s%s%s%s", path->label, passed,
               t->finding_count, failed ? "; FAILED " : "", failed ? failed->name : "", failed ? ": " : "",
               failed ? failed->detail : "");
}

void brief_print(const Profile *p, int width, FILE *file) {
    if (width < 60) width = 60;
    print_run(p, width, file);
    for (int i = 0; i < p->count; i++) {
        print_step(&p->paths[i], width, file);
        print_phases(&p->paths[i], width, file);
    }
    print_hottest(p, width, file);
    for (int i = 0; i < p->count; i++) print_bound(p, &p->paths[i], i ? "" : "bound by", width, file);
    for (int i = 0; i < p->count; i++) print_audit(&p->paths[i], i ? "" : "audit", width, file);
}
