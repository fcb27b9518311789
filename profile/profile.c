#include "profile/profile.h"

#include "base/cores.h"
#include "profile/fold.h"
#include "report/collectives.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- the audit ---- */

/* Relative rounding error of a sum of many doubles. */
static const double ROUNDING = 1e-9;

static const double PHASES_WITHIN = 0.01, NOT_COVERED_AT_MOST = 0.02, TRACING_COSTS_AT_MOST = 0.10;

/* The error in ns of a device time that CUPTI has converted to the host's clock. */
static const double CLOCK_STEP = 5000;

static bool ordered(double low, double middle, double high) {
    return low <= middle * (1 + ROUNDING) && middle <= high * (1 + ROUNDING);
}

static void check_order(Trace *t, const Figures *f) {
    int wrong = !ordered(f->low, f->step_ms, f->high);
    for (int64_t i = 0; i < f->row_count; i++)
        wrong += !ordered(f->rows[i].low, f->rows[i].ns, f->rows[i].high);
    trace_add_finding(t, "minimum <= average <= maximum", wrong, 0, "%d of %d rows out of order", wrong,
                      (int)f->row_count + 1);
}

/* In each step the self times must add up to the step; a child that extends beyond its parent would make a
 * self time negative. */
static void check_self(Trace *t) {
    int64_t total = 0, self = 0, negative = 0, host = 0, device = 0, device_self = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind == TRACE_STEP) total += trace_length(e);
        if (trace_on_device(e)) {
            device += e->parent >= 0 ? trace_length(e) : 0;
            continue;
        }
        device_self += e->device_self;
        if (e->kind == TRACE_RUNTIME || trace_above(t, i, TRACE_STEP) < 0) continue;
        self += e->self;
        negative += e->self < 0;
        host++;
    }
    trace_add_finding(t, "self times sum to the total",
                      (double)(negative + (self != total) + (device_self != device)), 0,
                      "host %.3f of %.3f ms, device %.3f of %.3f ms; %" PRId64 " of %" PRId64 " negative",
                      1e-6 * (double)self, 1e-6 * (double)total, 1e-6 * (double)device_self,
                      1e-6 * (double)device, negative, host);
}

static void check_phases(Trace *t, const Figures *f) {
    double sum = 0;
    for (int p = 0; p < PHASE_COUNT; p++) sum += f->phases[p].ns;
    double share = f->step_ns > 0 ? sum / f->step_ns : 0;
    trace_add_finding(t, CHECK_PHASES, fabs(share - 1), PHASES_WITHIN, "%.3f of %.3f ms, %.2f%%", 1e-6 * sum,
                      1e-6 * f->step_ns, 100 * share);
}

static void check_coverage(Trace *t, const Figures *f) {
    if (t->run.isolate || t->run.host_only) return; // between operations the host waits for the device
    trace_add_finding(t, CHECK_COVERED, 1 - f->covered, NOT_COVERED_AT_MOST, "%.2f%%", 100 * f->covered);
}

/* Checks the records of all ranks. */
static void check_records(Trace *t) {
    int64_t kernels = 0, launches = 0, dropped = 0;
    bool counted = true;
    for (int32_t rank = 0; rank <= t->other_count; rank++) {
        const Trace *own = trace_of_rank(t, rank);
        for (int64_t i = 0; i < own->count; i++) kernels += own->events[i].kind == TRACE_KERNEL;
        counted = counted && own->run.launches >= 0;
        launches += own->run.launches;
        dropped += own->run.dropped;
    }
    if (counted)
        trace_add_finding(t, "records = launches", fabs((double)(kernels - launches)), 0,
                          "%" PRId64 " records, %" PRId64 " launches", kernels, launches);
    trace_add_finding(t, "no record dropped", (double)dropped, 0, "%" PRId64 " dropped", dropped);
}

/* No rank may leave a collective before all have entered it, within the error of the clocks: a sum or a
 * gathering needs data from each. */
static void check_ranks(Trace *t) {
    Collectives all = collectives_of(t);
    double within = 0, early = 0;
    for (int32_t i = 0; i < t->other_count; i++) within = fmax(within, t->others[i]->run.clock_within);
    for (int64_t i = 0; i < all.count; i++)
        for (int rank = 0; rank < all.ranks && all.list[i].waits; rank++)
            early = fmax(early, (double)(all.list[i].begin - all.list[i].spans[rank].end));
    trace_add_finding(t, "the ranks ran the same collectives", all.mismatch != NULL, 0,
                      "%" PRId64 " on each of %d ranks%s%s", all.count, all.ranks, all.mismatch ? "; " : "",
                      all.mismatch ? all.mismatch : "");
    trace_add_finding(t, "no rank leaves a collective before all are in it", early, 2 * within + CLOCK_STEP,
                      "%.1f us early at most; the clocks agree to within %.1f us", 1e-3 * early,
                      1e-3 * within);
    collectives_free(&all);
}

static void check_finite(Trace *t, const Figures *f) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        wrong += !isfinite(r->ns + r->low + r->high + r->host_ns + r->calls + r->launches + r->work.flops +
                           r->work.bytes + r->work.sent);
    }
    for (int64_t i = 0; i < t->run.step_count; i++)
        wrong += !isfinite(t->run.step_ms[i] + t->run.reader_ms[i]);
    wrong += !isfinite(f->step_ms + f->overhead + t->run.measured.flops + t->run.measured.bandwidth);
    trace_add_finding(t, "every figure is finite", (double)wrong, 0, "%" PRId64 " are not", wrong);
}

/* Whether other processes used the cores: then a time says nothing about what the machine can do. */
static bool is_shared(const Trace *t) {
    return t->run.cores_waited > CORES_SHARED;
}

static double share_of_limit(const OperationRow *row, const Peaks *peaks) {
    return limit_share(peaks, row->work, row->calls, row->ns);
}

static void check_limits(Trace *t, const Figures *f) {
    const Peaks *measured = &t->run.measured, *most = trace_utmost(&t->run);
    if (!f->row_count || !peaks_known(most) || is_shared(t)) return;
    const OperationRow *highest = &f->rows[0];
    int above = 0, above_measured = 0;
    for (int64_t i = 0; i < f->row_count; i++) {
        above += share_of_limit(&f->rows[i], most) > 1;
        above_measured += share_of_limit(&f->rows[i], measured) > 1;
        if (share_of_limit(&f->rows[i], most) > share_of_limit(highest, most)) highest = &f->rows[i];
    }
    trace_add_finding(t, CHECK_LIMITS, above, 0,
                      "%d above; highest %s %s with %.1f%% of the %s limit; %d above what was measured%s",
                      above, highest->call, pass_name(highest->pass), 100 * share_of_limit(highest, most),
                      most == measured ? "measured" : "data sheet's", above_measured,
                      above ? ": its data stay in a cache, or its work is counted too high" : "");
}

/* If the noise of the steps hides a cost above the limit, the cost is unknown, and the check does not
 * pass. */
static void check_overhead(Trace *t, const Figures *f) {
    if (!t->run.step_count || t->run.isolate || is_shared(t)) return;
    if (f->overhead_noise && fabs(f->overhead) > TRACING_COSTS_AT_MOST) return;
    trace_add_finding(t, CHECK_OVERHEAD, f->overhead_noise ? 0 : f->overhead, TRACING_COSTS_AT_MOST,
                      "%+.2f%%%s: a median step of %.3f ms without it", 100 * f->overhead,
                      f->overhead_noise ? ", which is within noise" : "", f->step_ms);
}

void audit_profile(Trace *t, const Figures *f) {
    check_order(t, f);
    check_self(t);
    check_phases(t, f);
    check_coverage(t, f);
    check_records(t);
    if (t->run.ranks > 1) check_ranks(t);
    check_finite(t, f);
    check_limits(t, f);
    check_overhead(t, f);
}

/* ---- the profile ---- */

static const char *label_of(const Figures *f) {
    int forms[FORM_COUNT] = {0};
    for (int64_t i = 0; i < f->row_count; i++) forms[f->rows[i].form]++;
    if (forms[FORM_NAIVE] && forms[FORM_FUSED]) return "mixed";
    return form_name(forms[FORM_FUSED] ? FORM_FUSED : FORM_NAIVE);
}

Status profile_make(Trace *const *traces, int count, const Difference *differences, int difference_count,
                    Profile *profile) {
    *profile = (Profile){.differences = differences, .difference_count = difference_count};
    Status status = OK;
    for (int i = 0; i < count; i++) {
        ProfilePath *path = &profile->paths[i];
        path->trace = traces[i];
        status = figures_make(traces[i], &path->figures);
        if (status) break;
        profile->count++;
        path->label = label_of(&path->figures);
        audit_profile(path->trace, &path->figures);
    }
    /* The second path may fall back to the naive form for some operations; it is still called the fused
     * path. */
    if (count == FORM_COUNT) {
        profile->paths[FORM_NAIVE].label = form_name(FORM_NAIVE);
        profile->paths[FORM_FUSED].label = form_name(FORM_FUSED);
    }
    if (status) profile_free(profile);
    return status;
}

void profile_free(Profile *profile) {
    for (int i = 0; i < profile->count; i++) figures_free(&profile->paths[i].figures);
    *profile = (Profile){0};
}
