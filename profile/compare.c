#include "profile/compare.h"

#include "base/files.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void compare_free(Comparison *c) {
    for (int i = 0; i < FORM_COUNT; i++) summary_free(&c->paths[i].summary);
    memory_free(c->differences);
    *c = (Comparison){0};
}

static const SummaryRow *partner(const Summary *s, const SummaryRow *row) {
    for (int i = 0; i < s->count; i++) {
        const SummaryRow *r = &s->rows[i];
        if (!r->primitive && r->operation == row->operation && r->pass == row->pass &&
            strcmp(r->call, row->call) == 0)
            return r;
    }
    return NULL;
}

static const Difference *difference_of(const Comparison *c, const SummaryRow *row) {
    for (int i = 0; i < c->difference_count; i++) {
        const Difference *d = &c->differences[i];
        if (d->operation == row->operation && d->pass == row->pass && strcmp(d->call, row->call) == 0)
            return d;
    }
    return NULL;
}

static double ratio(double naive, double fused) {
    return fused > 0 ? naive / fused : 0;
}

/* Rate towards the limit that binds: TF/s or GF/s of arithmetic, TB/s or GB/s of memory. */
static void print_rate(const SummaryRow *r, const Peaks *peaks, FILE *file) {
    char limit;
    double share = work_share(r->work, r->ms, peaks, &limit), seconds = 1e-3 * r->ms;
    double amount = limit == 'm' ? r->work.flops : r->work.bytes;
    double rate = seconds > 0 ? amount / seconds : 0;
    bool large = rate >= 1e11; // tera or giga
    fprintf(file, " %9.3f %6.0f %7.2f %c%s/s %5.1f%% |", r->ms, r->launches, rate * (large ? 1e-12 : 1e-9),
            large ? 'T' : 'G', limit == 'm' ? "F" : "B", 100 * share);
}

static void print_row(const Comparison *c, const SummaryRow *naive, FILE *file) {
    const SummaryRow *fused = partner(&c->paths[FORM_FUSED].summary, naive);
    if (!fused) return;
    const Difference *d = difference_of(c, naive);
    fprintf(file, "%-20s %-8s %9.2f %9.2f |", naive->call, pass_name(naive->pass), 1e-9 * naive->work.flops,
            1e-6 * naive->work.bytes);
    print_rate(naive, &c->peaks, file);
    print_rate(fused, &c->peaks, file);
    fprintf(file, " %6.2f", ratio(naive->ms, fused->ms));
    if (d)
        fprintf(file, "  %8.1e", d->difference);
    else
        fprintf(file, "  %8s", "-");
    fprintf(file, "%s\n", fused->form == FORM_NAIVE ? "  (no fused form here)" : "");
}

static void print_total(const char *name, double naive, double fused, FILE *file) {
    fprintf(file, "%-49s | %9.3f %27s| %9.3f %27s| %6.2f\n", name, naive, "", fused, "", ratio(naive, fused));
}

void compare_print(const Comparison *c, FILE *file) {
    const PathProfile *naive = &c->paths[FORM_NAIVE], *fused = &c->paths[FORM_FUSED];
    fprintf(file, "naive and fused, %s, batch %lld, seq %lld, %s, on %s with %s\n", c->model,
            (long long)c->batch, (long long)c->seq, c->dtype, c->device, c->library);
    fprintf(file, "medians of %lld rounds in alternation, from the same state on the same batches\n",
            (long long)c->rounds);
    fprintf(file, "%-20s %-8s %9s %9s | %9s %6s %12s %6s | %9s %6s %12s %6s | %6s  %s\n", "operation", "pass",
            "GFLOP", "MB least", "naive ms", "calls", "rate", "limit", "fused ms", "calls", "rate", "limit",
            "ratio", "difference");
    for (int i = 0; i < naive->summary.count; i++)
        if (!naive->summary.rows[i].primitive) print_row(c, &naive->summary.rows[i], file);
    for (int pass = 0; pass < PASS_COUNT; pass++) {
        char name[64];
        snprintf(name, sizeof name, "%s (sum)", pass == PASS_UPDATE ? "optimizer" : pass_name((Pass)pass));
        print_total(name, summary_pass_ms(&naive->summary, (Pass)pass),
                    summary_pass_ms(&fused->summary, (Pass)pass), file);
    }
    print_total("whole step, timed with nothing else on", naive->step_ms, fused->step_ms, file);
    fprintf(file, "  spread of the whole step: naive %.3f to %.3f ms, fused %.3f to %.3f ms\n",
            naive->step_low, naive->step_high, fused->step_low, fused->step_high);
    fprintf(file, "peak memory: naive %.1f MiB, fused %.1f MiB (%.2f times)\n",
            (double)naive->peak_bytes / 1048576, (double)fused->peak_bytes / 1048576,
            ratio((double)naive->peak_bytes, (double)fused->peak_bytes));
    fprintf(
        file,
        "limits measured here: %.4g TFLOP/s (products), %.3g TB/s (copy); calls: kernels and library calls\n",
        1e-12 * c->peaks.flops, 1e-12 * c->peaks.bandwidth);
}

static json_t *json_path(const SummaryRow *r, const Peaks *peaks) {
    char limit;
    double share = work_share(r->work, r->ms, peaks, &limit), seconds = 1e-3 * r->ms;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "form", form_name(r->form), "ms", r->ms,
                     "ms_low", r->ms_low, "ms_high", r->ms_high, "launches", r->launches, "tflops",
                     seconds > 0 ? 1e-12 * r->work.flops / seconds : 0.0, "tbps",
                     seconds > 0 ? 1e-12 * r->work.bytes / seconds : 0.0, "share_of_limit", share, "limit",
                     limit == 'm' ? "matrix" : "bandwidth");
}

static json_t *json_row(const Comparison *c, const SummaryRow *naive) {
    const SummaryRow *fused = partner(&c->paths[FORM_FUSED].summary, naive);
    if (!fused) return NULL;
    const Difference *d = difference_of(c, naive);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:o, s:o, s:f}", "place", naive->call, "operation",
                  operation_name(naive->operation), "pass", pass_name(naive->pass), "flops",
                  naive->work.flops, "least_bytes", naive->work.bytes, "naive", json_path(naive, &c->peaks),
                  "fused", json_path(fused, &c->peaks), "ratio", ratio(naive->ms, fused->ms));
    json_object_set_new(row, "difference",
                        d && isfinite(d->difference) ? json_real(d->difference) : json_null());
    return row;
}

static json_t *json_whole(const PathProfile *p) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "forward_ms",
                     summary_pass_ms(&p->summary, PASS_FORWARD), "backward_ms",
                     summary_pass_ms(&p->summary, PASS_BACKWARD), "optimizer_ms",
                     summary_pass_ms(&p->summary, PASS_UPDATE), "step_ms", p->step_ms, "step_ms_low",
                     p->step_low, "step_ms_high", p->step_high, "peak_bytes", (json_int_t)p->peak_bytes);
}

Status compare_write(const Comparison *c, const char *path) {
    json_t *rows = json_array();
    const Summary *naive = &c->paths[FORM_NAIVE].summary;
    for (int i = 0; i < naive->count; i++) {
        json_t *row = naive->rows[i].primitive ? NULL : json_row(c, &naive->rows[i]);
        if (row) json_array_append_new(rows, row);
    }
    json_t *whole =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "schema", 1, "model",
                  c->model, "device", c->device, "library", c->library, "dtype", c->dtype, "batch",
                  (json_int_t)c->batch, "seq", (json_int_t)c->seq, "rounds", (json_int_t)c->rounds,
                  "peak_flops", c->peaks.flops, "peak_bandwidth", c->peaks.bandwidth, "operations", rows,
                  "naive", json_whole(&c->paths[FORM_NAIVE]), "fused", json_whole(&c->paths[FORM_FUSED]));
    char *text = whole ? json_dumps(whole, JSON_INDENT(1)) : NULL;
    Status status = text ? file_write(path, text, (int64_t)strlen(text))
                         : fail(ERROR_MEMORY, "out of host memory to write %s", path);
    free(text); // jansson's own
    json_decref(whole);
    return status;
}
