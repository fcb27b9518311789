#include "profile/compare.h"

#include "base/cores.h"
#include "base/json_writer.h"
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

void timed_operations_free(TimedOperations *timed) {
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

void timed_operations_print(const TimedOperations *timed, FILE *file) {
    const Figures *f = &timed->figures;
    const Peaks *peaks = &timed->trace->run.measured;
    const RateUnit unit = rate_unit(f);
    double total = pass_ms(f, PASS_COUNT);
    fprintf(file, "%-30s %-8s %-5s %10s %6s %9s  %cFLOP/s    %cB/s %8s\n", "operation", "pass", "form", "ms",
            "%", "launches", unit.letter, unit.letter, "of limit");
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        fprintf(file, "%-30s %-8s %-5s %10.3f %6.1f %9.0f %8.2f %7.3f %6.1f%%%c\n", r->call,
                pass_name(r->pass), form_name(r->form), 1e-6 * r->median, 1e-4 * ratio(r->median, total),
                r->launches, unit.per_ns * ratio(r->work.flops, r->median),
                unit.per_ns * ratio(r->work.bytes, r->median),
                100 * limit_share(peaks, r->work, r->calls, r->median), limit_letter(r));
        for (int64_t k = 0; k < r->inside_count; k++) {
            const InsideRow *inside = &r->inside[k];
            if (inside->primitive)
                fprintf(file, "  %-28s %-8s %-5s %10.3f %6.1f %9.0f\n", inside->name, pass_name(r->pass),
                        form_name(r->form), 1e-6 * inside->median, 1e-4 * ratio(inside->median, total),
                        inside->launches);
        }
    }
    fprintf(file, "%-45s %10.3f\n", "sum of operations", total);
    print_report("", 0, file, "limits measured here: %s", limits_text(peaks).text);
}

/* ---- both paths ---- */

void compare_free(Comparison *c) {
    for (int i = 0; i < FORM_COUNT; i++) timed_operations_free(&c->paths[i].operations);
    memory_free(c->differences);
    *c = (Comparison){0};
}

static const Figures *figures_of(const Comparison *c, Form form) {
    return &c->paths[form].operations.figures;
}

static const OperationRow *partner(const Comparison *c, const OperationRow *row) {
    return figures_find(figures_of(c, FORM_FUSED), row->call, row->operation, row->pass);
}

static const Difference *difference_of(const Comparison *c, const OperationRow *row) {
    return difference_find(c->differences, c->difference_count, row->call, row->operation, row->pass);
}

/* The cells of a path: without a row only the time; the share only where the limits are known. */
static void print_path(const Peaks *peaks, double ms, const OperationRow *r, FILE *file) {
    fprintf(file, "  %9.3f", ms);
    if (r)
        fprintf(file, " %5.0f", r->launches);
    else
        fprintf(file, " %5s", "");
    if (!peaks_known(peaks)) return;
    if (r)
        fprintf(file, " %5.1f%%", 100 * limit_share(peaks, r->work, r->calls, r->median));
    else
        fprintf(file, " %6s", "");
}

static void print_row(const Comparison *c, const OperationRow *naive, FILE *file) {
    const OperationRow *fused = partner(c, naive);
    if (!fused) return;
    const Difference *d = difference_of(c, naive);
    fprintf(file, "%-20s %-8s %12s %11s", naive->call, pass_name(naive->pass),
            in_words(CELL_FLOPS, naive->work.flops).text, in_words(CELL_BYTES, naive->work.bytes).text);
    print_path(&c->peaks, 1e-6 * naive->median, naive, file);
    print_path(&c->peaks, 1e-6 * fused->median, fused, file);
    fprintf(file, "  %6.2f%c", ratio(naive->median, fused->median), fused->form == FORM_NAIVE ? '*' : ' ');
    if (d)
        fprintf(file, " %7.1e\n", d->difference);
    else
        fprintf(file, " %7s\n", "-");
}

static void print_total(const Comparison *c, const char *name, double naive, double fused, double ratio,
                        FILE *file) {
    fprintf(file, "%-54s", name);
    print_path(&c->peaks, naive, NULL, file);
    print_path(&c->peaks, fused, NULL, file);
    fprintf(file, "  %6.2f\n", ratio);
}

static void print_head(const Comparison *c, FILE *file) {
    const char *share = peaks_known(&c->peaks) ? "  limit" : "";
    print_report("", 0, file, "naive and fused, %s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s with %s",
                 c->model, c->batch, c->seq, c->dtype, c->device, c->library);
    fprintf(file, "medians of %" PRId64 " alternating rounds, from the same state on the same batches\n",
            c->rounds);
    fprintf(file, "%-20s %-8s %12s %11s  %9s calls%s  %9s calls%s  %6s  differ\n", "operation", "pass",
            "work", "least bytes", "naive ms", share, "fused ms", share, "ratio");
}

/* Whether a row's fused path ran the naive form. */
static bool any_naive(const Comparison *c) {
    const Figures *f = figures_of(c, FORM_FUSED);
    for (int64_t i = 0; i < f->row_count; i++)
        if (f->rows[i].form == FORM_NAIVE) return true;
    return false;
}

/* Whether a row of either path is printed with more than 100% of its limit. */
static bool any_above(const Comparison *c) {
    for (int form = 0; form < FORM_COUNT; form++) {
        const Figures *f = figures_of(c, (Form)form);
        for (int64_t i = 0; i < f->row_count; i++) {
            const OperationRow *r = &f->rows[i];
            if (limit_share(&c->peaks, r->work, r->calls, r->median) >= 1.0005) return true;
        }
    }
    return false;
}

static void print_notes(const Comparison *c, FILE *file) {
    const PathTimes *naive = &c->paths[FORM_NAIVE], *fused = &c->paths[FORM_FUSED];
    fprintf(file, "  its ratio is the median of %" PRId64 " pairs: %.2f to %.2f (95%% interval)\n", c->rounds,
            c->pairs.low, c->pairs.high);
    fprintf(file, "  spread of the whole %s: naive %.3f to %.3f ms, fused %.3f to %.3f ms\n", c->what,
            naive->step.least, naive->step.most, fused->step.least, fused->step.most);
    if (naive->peak_bytes)
        fprintf(file, "peak memory: naive %.1f MiB, fused %.1f MiB (%.2f times)\n",
                (double)naive->peak_bytes / 1048576, (double)fused->peak_bytes / 1048576,
                ratio((double)naive->peak_bytes, (double)fused->peak_bytes));
    fprintf(file, "calls: kernels and library calls; differ: the outputs' relative difference%s\n",
            any_naive(c) ? "; *: no fused form here" : "");
    /* kernels/gemm/cpu.c: what a fusion saves is not all of the ratio. */
    if (strstr(c->library, "oneDNN"))
        print_report("", 0, file,
                     "products: naive in OpenBLAS, fused in whichever of oneDNN and OpenBLAS is faster, so "
                     "part of the "
                     "ratio is the library's; FUSEBOX_ONEDNN=none leaves oneDNN out");
    print_report("limit:", 7, file, "share of what was measured here: %s", limits_text(&c->peaks).text);
    if (any_above(c))
        print_report(
            "above 100%:", 12, file,
            "the limits were measured in another state of the machine, or the operation found its data in a "
            "cache nearer than its size suggests; --peaks measures the limits anew");
    if (c->cores_waited > CORES_SHARED) fprintf(file, "%s\n", cores_warning(c->cores_waited).text);
}

void compare_print(const Comparison *c, FILE *file) {
    const Figures *naive = figures_of(c, FORM_NAIVE), *fused = figures_of(c, FORM_FUSED);
    char name[64];
    print_head(c, file);
    for (int64_t i = 0; i < naive->row_count; i++) print_row(c, &naive->rows[i], file);
    for (int pass = 0; pass < PASS_COUNT; pass++) {
        const double before = pass_ms(naive, (Pass)pass), after = pass_ms(fused, (Pass)pass);
        snprintf(name, sizeof name, "%s (sum)", pass == PASS_UPDATE ? "optimizer" : pass_name((Pass)pass));
        if (before > 0) print_total(c, name, before, after, ratio(before, after), file);
    }
    snprintf(name, sizeof name, "whole %s, timed with nothing else on", c->what);
    print_total(c, name, c->paths[FORM_NAIVE].step.median, c->paths[FORM_FUSED].step.median, c->pairs.median,
                file);
    print_notes(c, file);
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

static void write_row(JsonWriter *w, const Comparison *c, const OperationRow *naive) {
    const OperationRow *fused = partner(c, naive);
    const Difference *d = difference_of(c, naive);
    if (!fused) return;
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_text(w, "place", naive->call);
    json_member_text(w, "operation", naive->operation);
    json_member_text(w, "pass", pass_name(naive->pass));
    json_member_number(w, "flops", naive->work.flops);
    json_member_number(w, "least_bytes", naive->work.bytes);
    write_path(w, "naive", naive, &c->peaks);
    write_path(w, "fused", fused, &c->peaks);
    json_member_number(w, "ratio", ratio(naive->median, fused->median));
    json_member_number(w, "difference", d ? d->difference : NAN);
    json_write_close(w, '}');
}

static void write_whole(JsonWriter *w, const char *key, const PathTimes *p) {
    json_write_line(w, 1, true);
    json_member_open(w, key, '{');
    json_member_number(w, "forward_ms", pass_ms(&p->operations.figures, PASS_FORWARD));
    json_member_number(w, "backward_ms", pass_ms(&p->operations.figures, PASS_BACKWARD));
    json_member_number(w, "optimizer_ms", pass_ms(&p->operations.figures, PASS_UPDATE));
    json_member_number(w, "step_ms", p->step.median);
    json_member_number(w, "step_ms_low", p->step.least);
    json_member_number(w, "step_ms_high", p->step.most);
    json_member_integer(w, "peak_bytes", (int64_t)p->peak_bytes);
    json_write_close(w, '}');
}

Status compare_write(const Comparison *c, const char *path) {
    JsonWriter w = {0};
    const Figures *naive = figures_of(c, FORM_NAIVE);
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
    json_member_number(&w, "ratio", c->pairs.median);
    json_member_number(&w, "ratio_low", c->pairs.low);
    json_member_number(&w, "ratio_high", c->pairs.high);
    json_member_number(&w, "cores_waited", c->cores_waited);
    json_member_open(&w, "operations", '[');
    for (int64_t i = 0; i < naive->row_count; i++) write_row(&w, c, &naive->rows[i]);
    json_write_close(&w, ']');
    write_whole(&w, "naive", &c->paths[FORM_NAIVE]);
    write_whole(&w, "fused", &c->paths[FORM_FUSED]);
    json_write_close(&w, '}');
    Status status = json_writer_save(&w, path);
    json_writer_free(&w);
    return status;
}
