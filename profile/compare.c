#include "profile/compare.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/wrap.h"
#include "profile/fold.h"
#include "profile/trace_records.h"
#include "report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- operations timed one by one ---- */

Status timed_operations_read(Recorder *recorder, const Peaks *peaks, const char *option,
                             TimedOperations *timed) {
    const Record *records;
    int64_t count, dropped;
    *timed = (TimedOperations){0};
    TRY(recorder_read(recorder, &records, &count, &dropped));
    if (dropped)
        return fail(ERROR_INTERNAL, "%lld records were dropped; use fewer %s", (long long)dropped, option);
    TRY(records_trace(records, count, peaks, &timed->trace));
    return figures_make(timed->trace, &timed->figures);
}

static void timed_operations_free(TimedOperations *timed) {
    figures_free(&timed->figures);
    trace_close(timed->trace);
    *timed = (TimedOperations){0};
}

/* The sum of the rows' medians for a pass; PASS_COUNT: for all passes. */
static double pass_ms(const Figures *f, Pass pass) {
    double ns = 0;
    for (int64_t i = 0; i < f->row_count; i++)
        if (pass == PASS_COUNT || f->rows[i].pass == pass) ns += f->rows[i].median;
    return 1e-6 * ns;
}

static char limit_letter(const OperationRow *r) {
    if (!*r->limit || strcmp(r->limit, "arithmetic") == 0) return 'm';
    return r->work.sent > 0 ? 'l' : 'b';
}

/* The unit of a column's rates: the largest in which the highest rate is more than 1. */
typedef struct {
    char letter;
    double per_ns; // one FLOP, or byte, per ns in this unit
} RateUnit;

static RateUnit rate_unit(const Figures *f) {
    bool tera = false;
    for (int64_t i = 0; i < f->row_count; i++)
        tera |= ratio(f->rows[i].work.flops, f->rows[i].median) >= 1000;
    return tera ? (RateUnit){'T', 1e-3} : (RateUnit){'G', 1};
}

/* A primitive's long name takes the place of its pass, which is the operation's. */
static void print_timed(const char *name, const OperationRow *r, bool primitive, double ns, double share,
                        double launches, FILE *file) {
    if (report_is_narrow(file) && primitive)
        fprintf(file, "%-30s", name);
    else
        fprintf(file, "%-*s %-8s", report_is_narrow(file) ? 21 : 30, name, pass_name(r->pass));
    fprintf(file, " %-5s %10.3f %6.1f", form_name(r->form), 1e-6 * ns, 100 * share);
    if (!report_is_narrow(file)) fprintf(file, " %9.0f", launches);
}

void timed_operations_print(const TimedOperations *timed, FILE *file) {
    const Figures *f = &timed->figures;
    const Peaks *peaks = &timed->trace->run.measured;
    const RateUnit unit = rate_unit(f);
    double total = pass_ms(f, PASS_COUNT);
    fprintf(file, "%-*s %-8s %-5s %10s %6s%s  %cFLOP/s    %cB/s %8s\n", report_is_narrow(file) ? 21 : 30,
            "operation", "pass", "form", "ms", "%", report_is_narrow(file) ? "" : "  launches", unit.letter,
            unit.letter, "of limit");
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        print_timed(r->call, r, false, r->median, 1e-6 * ratio(r->median, total), r->launches, file);
        fprintf(file, " %8.2f %7.3f %6.1f%%%c\n", unit.per_ns * ratio(r->work.flops, r->median),
                unit.per_ns * ratio(r->work.bytes, r->median),
                100 * limit_share(peaks, r->work, r->calls, r->median), limit_letter(r));
        for (int64_t k = 0; k < r->inside_count; k++) {
            const InsideRow *inside = &r->inside[k];
            char name[64];
            if (!inside->primitive) continue;
            snprintf(name, sizeof name, "  %s", inside->name);
            print_timed(name, r, true, inside->median, 1e-6 * ratio(inside->median, total), inside->launches,
                        file);
            fputc('\n', file);
        }
    }
    fprintf(file, "%-*s %10.3f\n", report_is_narrow(file) ? 36 : 45, "sum of operations", total);
    print_report("", 0, file, "limits measured here: %s", limits_text(peaks).text);
}

/* ---- paths side by side ---- */

static const char *const path_names[COMPARE_PATHS] = {"naive", "fused", "fp8"};

void path_times_free(PathTimes *path) {
    timed_operations_free(&path->operations);
    memory_free(path->differences);
    *path = (PathTimes){0};
}

void compare_free(Comparison *c) {
    for (int i = 0; i < COMPARE_PATHS; i++) path_times_free(&c->paths[i]);
    *c = (Comparison){0};
}

static const Figures *figures_of(const Comparison *c, int path) {
    return &c->paths[path].operations.figures;
}

static const OperationRow *partner(const Comparison *c, int path, const OperationRow *row) {
    return figures_find(figures_of(c, path), row->call, row->operation, row->pass);
}

/* Rows that only one path has, the casts of --fused=fp8, count for no pass's sum, because a cast runs as a
 * forward pass even in the backward pass. */
static double alone_ms(const Comparison *c, int path) {
    const Figures *f = figures_of(c, path);
    double ns = 0;
    for (int64_t i = 0; i < f->row_count && path > COMPARE_FUSED; i++)
        if (!partner(c, path - 1, &f->rows[i])) ns += f->rows[i].median;
    return 1e-6 * ns;
}

static double path_pass_ms(const Comparison *c, int path, Pass pass) {
    return pass_ms(figures_of(c, path), pass) - (pass == PASS_FORWARD ? alone_ms(c, path) : 0);
}

/* NULL: not compared. */
static const Difference *difference_of(const PathTimes *path, const OperationRow *row) {
    return difference_find(path->differences, path->difference_count, row->call, row->operation, row->pass);
}

/* Prints the cells of a path. Without a row there is only the time, if known; without limits there is no
 * share. */
static void print_path(const Peaks *peaks, double ms, const OperationRow *r, FILE *file) {
    const bool narrow = report_is_narrow(file);
    if (isfinite(ms))
        fprintf(file, "%*.3f", narrow ? 10 : 11, ms);
    else
        fprintf(file, "%*s", narrow ? 10 : 11, "");
    if (r && !narrow)
        fprintf(file, " %5.0f", r->launches);
    else
        fprintf(file, "%*s", narrow ? 0 : 6, "");
    if (!peaks_known(peaks)) return;
    if (r)
        fprintf(file, " %5.1f%%", 100 * limit_share(peaks, r->work, r->calls, r->median));
    else
        fprintf(file, " %6s", "");
}

static double row_ms(const OperationRow *r) {
    return r ? 1e-6 * r->median : NAN;
}

/* If `before` is NULL, only this path has the row, such as a cast of --fused=fp8; it is labelled with its
 * operation. */
static void print_row(const Comparison *c, int path, const OperationRow *before, const OperationRow *after,
                      FILE *file) {
    const Difference *d = difference_of(&c->paths[path], after);
    fprintf(file, "%-20s %-8s", after->call, before ? pass_name(after->pass) : after->operation);
    if (!report_is_narrow(file))
        fprintf(file, " %12s %11s", in_words(CELL_FLOPS, after->work.flops).text,
                in_words(CELL_BYTES, after->work.bytes).text);
    print_path(&c->peaks, row_ms(before), before, file);
    print_path(&c->peaks, row_ms(after), after, file);
    if (before)
        fprintf(file, "  %6.2f%c", ratio(before->median, after->median),
                after->form == FORM_NAIVE ? '*' : ' ');
    else
        fprintf(file, "  %6s ", "-");
    if (d)
        fprintf(file, " %7.1e\n", d->difference);
    else
        fprintf(file, " %7s\n", "-");
}

static void print_total(const Comparison *c, const char *name, double before, double after, double ratio,
                        FILE *file) {
    fprintf(file, "%-*s", report_is_narrow(file) ? 29 : 54, name);
    print_path(&c->peaks, before, NULL, file);
    print_path(&c->peaks, after, NULL, file);
    if (isfinite(ratio))
        fprintf(file, "  %6.2f\n", ratio);
    else
        fprintf(file, "  %6s\n", "-");
}

static void print_head(const Comparison *c, int path, FILE *file) {
    const char *share = peaks_known(&c->peaks) ? "  limit" : "";
    const bool narrow = report_is_narrow(file);
    const char *calls = narrow ? "" : " calls";
    const char *before = path_names[path - 1], *after = path_names[path];
    print_report("", 0, file, "%s and %s, %s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s with %s", before,
                 after, c->model, c->batch, c->seq, c->dtype, c->device, c->library);
    fprintf(file, "medians of %" PRId64 " alternating rounds, from the same state on the same batches\n",
            c->rounds);
    fprintf(file, "%-20s %-8s%s%*s ms%s%s%*s ms%s%s  %6s  differ\n", "operation", "pass",
            narrow ? "" : "         work least bytes", narrow ? 7 : 8, before, calls, share, narrow ? 7 : 8,
            after, calls, share, "ratio");
}

/* Whether a row of the path ran the naive form. */
static bool any_naive(const Comparison *c, int path) {
    const Figures *f = figures_of(c, path);
    for (int64_t i = 0; i < f->row_count; i++)
        if (f->rows[i].form == FORM_NAIVE) return true;
    return false;
}

/* Whether a row of either path is printed with more than 100% of its limit. */
static bool any_above(const Comparison *c, int path) {
    for (int p = path - 1; p <= path; p++) {
        const Figures *f = figures_of(c, p);
        for (int64_t i = 0; i < f->row_count; i++) {
            const OperationRow *r = &f->rows[i];
            if (limit_share(&c->peaks, r->work, r->calls, r->median) >= 1.0005) return true;
        }
    }
    return false;
}

static void print_pair_notes(const Comparison *c, int path, FILE *file) {
    const PathTimes *before = &c->paths[path - 1], *after = &c->paths[path];
    const char *first = path_names[path - 1], *second = path_names[path];
    fprintf(file, "  its ratio is the median of %" PRId64 " pairs: %.2f to %.2f (95%% interval)\n", c->rounds,
            after->pairs.low, after->pairs.high);
    fprintf(file, "  spread of the whole %s: %s %.3f to %.3f ms, %s %.3f to %.3f ms\n", c->what, first,
            before->step.least, before->step.most, second, after->step.least, after->step.most);
    if (before->peak_bytes)
        fprintf(file, "peak memory: %s %.1f MiB, %s %.1f MiB (%.2f times)\n", first,
                (double)before->peak_bytes / 1048576, second, (double)after->peak_bytes / 1048576,
                ratio((double)before->peak_bytes, (double)after->peak_bytes));
    print_report("calls:", 7, file, "kernels and library calls; differ: the outputs' relative difference%s%s",
                 path == COMPARE_FUSED ? "" : " from the naive path's",
                 any_naive(c, path) ? "; *: no fused form here" : "");
    if (any_above(c, path))
        print_report(
            "above 100%:", 12, file,
            "the limits were measured in another state of the machine, or the operation found its data in a "
            "cache nearer than its size suggests; --peaks measures the limits anew");
}

static void print_pair(const Comparison *c, int path, FILE *file) {
    const Figures *before = figures_of(c, path - 1), *after = figures_of(c, path);
    char name[64];
    print_head(c, path, file);
    for (int64_t i = 0; i < before->row_count; i++) {
        const OperationRow *row = partner(c, path, &before->rows[i]);
        if (row) print_row(c, path, &before->rows[i], row, file);
    }
    for (int64_t i = 0; i < after->row_count; i++)
        if (!partner(c, path - 1, &after->rows[i])) print_row(c, path, NULL, &after->rows[i], file);
    for (int pass = 0; pass < PASS_COUNT; pass++) {
        const double first = path_pass_ms(c, path - 1, (Pass)pass),
                     second = path_pass_ms(c, path, (Pass)pass);
        snprintf(name, sizeof name, "%s (sum)", pass == PASS_UPDATE ? "optimizer" : pass_name(pass));
        if (first > 0) print_total(c, name, first, second, ratio(first, second), file);
    }
    snprintf(name, sizeof name, "%s alone (sum)", path_names[path]);
    if (alone_ms(c, path) > 0) print_total(c, name, NAN, alone_ms(c, path), NAN, file);
    snprintf(name, sizeof name, "whole %s%s", c->what,
             report_is_narrow(file) ? "" : ", timed with nothing else on");
    print_total(c, name, c->paths[path - 1].step.median, c->paths[path].step.median,
                c->paths[path].pairs.median, file);
    print_pair_notes(c, path, file);
}

/* The forms may use different libraries (kernels/gemm/cpu.c), so fusion is not the only cause of the ratio. */
void gain_split_print(const GainSplit *s, FILE *file) {
    const MedianInterval *forms = &s->forms, *products = &s->products;
    const MedianInterval *one = &s->one_thread, *more = &s->threads;
    if (forms->median > 0)
        print_report(
            "products:", 10, file,
            "naive in OpenBLAS, fused in whichever of it and oneDNN is faster. Of the ratio naive over "
            "fused, the fused forms give %.2f (%.2f to %.2f; both with OpenBLAS) and the products' library "
            "%.2f (%.2f to %.2f)",
            forms->median, forms->low, forms->high, products->median, products->low, products->high);
    if (more->median > 0)
        print_report("threads:", 9, file,
                     "on one thread, with OpenBLAS, the fused forms are %.2f times as fast as the naive ones "
                     "(%.2f to %.2f); more threads multiply that by %.2f (%.2f to %.2f)",
                     one->median, one->low, one->high, more->median, more->low, more->high);
}

void compare_print(const Comparison *c, FILE *file) {
    for (int path = 1; path < c->path_count; path++) {
        print_pair(c, path, file);
        fprintf(file, "%s", path + 1 < c->path_count ? "\n" : "");
    }
    gain_split_print(&c->split, file);
    print_report("limit:", 7, file, "share of what was measured here: %s", limits_text(&c->peaks).text);
    if (c->cores_waited > CORES_SHARED) print_report("", 0, file, "%s", cores_warning(c->cores_waited).text);
}

void gain_split_write(const GainSplit *s, JsonWriter *w) {
    if (s->forms.median > 0) {
        json_member_number(w, "forms_ratio", s->forms.median);
        json_member_number(w, "products_ratio", s->products.median);
    }
    if (s->threads.median > 0) {
        json_member_number(w, "one_thread_ratio", s->one_thread.median);
        json_member_number(w, "threads_ratio", s->threads.median);
    }
}

static void write_path(JsonWriter *w, const char *key, const OperationRow *r, const Peaks *peaks) {
    json_member_open(w, key, '{');
    json_member_text(w, "form", form_name(r->form));
    json_member_number(w, "ms", 1e-6 * r->median);
    json_member_number(w, "ms_low", 1e-6 * r->low);
    json_member_number(w, "ms_high", 1e-6 * r->high);
    json_member_number(w, "launches", r->launches);
    json_member_number(w, "tflops", 1e-3 * ratio(r->work.flops, r->median));
    json_member_number(w, "tbps", 1e-3 * ratio(r->work.bytes, r->median));
    json_member_number(w, "share_of_limit", limit_share(peaks, r->work, r->calls, r->median));
    json_member_text(w, "limit", r->limit);
    json_write_close(w, '}');
}

static void write_operation(JsonWriter *w, const OperationRow *row) {
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_text(w, "place", row->call);
    json_member_text(w, "operation", row->operation);
    json_member_text(w, "pass", pass_name(row->pass));
    json_member_number(w, "flops", row->work.flops);
    json_member_number(w, "least_bytes", row->work.bytes);
}

/* Writes a row that every path has. The third path's ratio and difference have keys that begin with its
 * name. */
static void write_row(JsonWriter *w, const Comparison *c, const OperationRow *naive) {
    const OperationRow *rows[COMPARE_PATHS] = {naive};
    for (int path = 1; path < c->path_count; path++) {
        rows[path] = partner(c, path, naive);
        if (!rows[path]) return;
    }
    write_operation(w, naive);
    for (int path = 0; path < c->path_count; path++) {
        const Difference *d = difference_of(&c->paths[path], naive);
        write_path(w, path_names[path], rows[path], &c->peaks);
        if (path == COMPARE_NAIVE) continue;
        json_member_number(w, path == COMPARE_FP8 ? "fp8_ratio" : "ratio",
                           ratio(rows[path - 1]->median, rows[path]->median));
        json_member_number(w, path == COMPARE_FP8 ? "fp8_difference" : "difference", d ? d->difference : NAN);
    }
    json_write_close(w, '}');
}

/* Writes the rows that only the last path has: the casts of --fused=fp8. */
static void write_alone(JsonWriter *w, const Comparison *c, int path) {
    const Figures *f = figures_of(c, path);
    json_member_open(w, "fp8_alone", '[');
    for (int64_t i = 0; i < f->row_count; i++) {
        if (partner(c, path - 1, &f->rows[i])) continue;
        write_operation(w, &f->rows[i]);
        write_path(w, path_names[path], &f->rows[i], &c->peaks);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_whole(JsonWriter *w, const Comparison *c, int path) {
    const PathTimes *p = &c->paths[path];
    json_write_line(w, 1, true);
    json_member_open(w, path_names[path], '{');
    json_member_number(w, "forward_ms", path_pass_ms(c, path, PASS_FORWARD));
    json_member_number(w, "backward_ms", path_pass_ms(c, path, PASS_BACKWARD));
    json_member_number(w, "optimizer_ms", path_pass_ms(c, path, PASS_UPDATE));
    json_member_number(w, "step_ms", p->step.median);
    json_member_number(w, "step_ms_low", p->step.least);
    json_member_number(w, "step_ms_high", p->step.most);
    json_member_integer(w, "peak_bytes", (int64_t)p->peak_bytes);
    json_write_close(w, '}');
}

Status compare_write(const Comparison *c, const char *path) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    const PathTimes *fused = &c->paths[COMPARE_FUSED], *fp8 = &c->paths[COMPARE_FP8];
    json_write_open(&w, '{');
    json_member_integer(&w, "schema", 1);
    json_member_text(&w, "model", c->model);
    json_member_text(&w, "device", c->device);
    json_member_text(&w, "library", c->library);
    json_member_text(&w, "dtype", c->dtype);
    json_member_integer(&w, "batch", c->batch);
    json_member_integer(&w, "seq", c->seq);
    json_member_integer(&w, "rounds", c->rounds);
    json_member_number(&w, "peak_flops", c->peaks.flops);
    json_member_number(&w, "peak_bandwidth", c->peaks.bandwidth);
    json_member_number(&w, "ratio", fused->pairs.median);
    json_member_number(&w, "ratio_low", fused->pairs.low);
    json_member_number(&w, "ratio_high", fused->pairs.high);
    gain_split_write(&c->split, &w);
    if (c->path_count > COMPARE_FP8) {
        json_member_number(&w, "fp8_ratio", fp8->pairs.median);
        json_member_number(&w, "fp8_ratio_low", fp8->pairs.low);
        json_member_number(&w, "fp8_ratio_high", fp8->pairs.high);
    }
    json_member_number(&w, "cores_waited", c->cores_waited);
    json_member_open(&w, "operations", '[');
    const Figures *naive = figures_of(c, COMPARE_NAIVE);
    for (int64_t i = 0; i < naive->row_count; i++) write_row(&w, c, &naive->rows[i]);
    json_write_close(&w, ']');
    if (c->path_count > COMPARE_FP8) write_alone(&w, c, COMPARE_FP8);
    for (int i = 0; i < c->path_count; i++) write_whole(&w, c, i);
    json_write_close(&w, '}');
    return json_writer_save(&w, path);
}
