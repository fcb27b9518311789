#include "report/bundle_check.h"

#include "report/tables.h"

#include <math.h>
#include <string.h>

/* Figures are means of whole nanoseconds, so their sums are rounded. */
static const double ROUNDING = 1e-6;

static bool same(double a, double b) {
    return fabs(a - b) <= ROUNDING * fmax(fabs(a), fabs(b)) + ROUNDING;
}

static bool at_most(double part, double whole) {
    return part <= whole || same(part, whole);
}

static Status expect_same(const char *what, double found, double expected) {
    if (same(found, expected)) return OK;
    return fail(ERROR_FORMAT, "%s: %.15g; the figures beside it give %.15g", what, found, expected);
}

static Status expect_at_most(const char *what, double part, double whole) {
    if (at_most(part, whole)) return OK;
    return fail(ERROR_FORMAT, "%s: %.15g, which is part of %.15g", what, part, whole);
}

/* ---- operations ---- */

static Status check_inside(const OperationRow *r) {
    double ns = 0, launches = 0;
    for (int64_t i = 0; i < r->inside_count; i++) {
        ns += r->inside[i].ns;
        launches += r->inside[i].launches;
    }
    TRY(expect_same("inside: the sum of ns", ns, r->ns));
    return expect_same("inside: the sum of launches", launches, r->launches);
}

static Status check_row(const Bundle *b, const OperationRow *r) {
    if (r->median > 0) { // otherwise an older bundle, without these values
        TRY(expect_at_most("low_ns", r->low, r->median));
        TRY(expect_at_most("median_ns", r->median, r->high));
        TRY(expect_at_most("spread_ns", r->spread, r->high - r->low));
    }
    TRY(expect_same("share_of_limit", r->share_of_limit,
                    limit_share(trace_limits(&b->run), r->work, r->calls, r->ns)));
    return check_inside(r);
}

static Status check_operations(const Bundle *b, const BundlePath *path) {
    double ns = 0, launches = 0;
    for (int64_t i = 0; i < path->rows_count; i++) {
        const OperationRow *r = &path->rows[i];
        TRY(fail_at(check_row(b, r), "operations: %s %s", r->call, pass_name(r->pass)));
        ns += r->ns;
        launches += r->launches;
    }
    TRY(expect_at_most("operations: the sum of ns", ns, path->step.device));
    return expect_at_most("operations: the sum of launches", launches, path->step.launches);
}

/* ---- kernels, phases, memory ---- */

static Status check_kernels(const BundlePath *path) {
    double ns = 0;
    for (int64_t i = 0; i < path->kernels_count; i++)
        for (int pass = 0; pass < PASS_COUNT; pass++) ns += path->kernels[i].in[pass].ns;
    return expect_same("kernels: the sum of ns", ns, path->step.device);
}

static Status check_phases(const BundlePath *path) {
    double ns = 0, device = 0;
    for (int64_t i = 0; i < path->phases_count; i++) {
        ns += path->phases[i].ns;
        for (int64_t k = 0; k < path->phases[i].categories_count; k++)
            device += path->phases[i].categories[k].ns;
    }
    TRY(expect_same("phases: the sum of their categories' ns", device, path->step.device));
    return expect_at_most("phases: the sum of ns", ns, path->step.traced);
}

static Status check_memory(const BundlePath *path) {
    double bytes = 0;
    for (int64_t i = 0; i < path->classes_count; i++) bytes += (double)path->classes[i].bytes;
    return expect_same("memory: the sum of classes", bytes, (double)path->peak_bytes);
}

/* ---- figures that tables repeat ---- */

static const Table *table_of(const BundlePath *path, const char *key) {
    for (int64_t i = 0; i < path->tables_count; i++)
        if (strcmp(path->tables[i].key, key) == 0) return &path->tables[i];
    return NULL;
}

static double cell(const Table *table, int64_t row, const char *key) {
    int column = table_column(table, key);
    return column < 0 ? NAN : table->cells[row * table->column_count + column].number;
}

/* The sum of a column; empty cells count as 0. */
static double column_sum(const Table *table, const char *key) {
    double sum = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        double number = cell(table, row, key);
        sum += isfinite(number) ? number : 0;
    }
    return sum;
}

/* The row with this text in this column; -1: none. */
static int64_t row_of(const Table *table, const char *key, const char *text) {
    int column = table_column(table, key);
    for (int64_t row = 0; column >= 0 && row < table->rows; row++) {
        const char *found = table->cells[row * table->column_count + column].text;
        if (found && strcmp(found, text) == 0) return row;
    }
    return -1;
}

/* Checks the range of the steps, in ms. */
static Status check_perf(const Table *perf, const BundleStep *step) {
    int64_t row = row_of(perf, "what", PERF_STEP);
    if (row < 0) return OK;
    TRY(expect_same("the step's low_ns", step->low, 1e6 * cell(perf, row, "least")));
    return expect_same("the step's high_ns", step->high, 1e6 * cell(perf, row, "most"));
}

/* Tables cover all recorded steps, figures one step. */
static Status check_tables(const BundlePath *path) {
    const double steps = (double)path->step.recorded;
    const Table *categories = table_of(path, "categories"), *kernels = table_of(path, "kernels"),
                *model = table_of(path, "model"), *perf = table_of(path, "perf");
    double launched = 0;
    for (int64_t i = 0; i < path->kernels_count; i++)
        for (int pass = 0; pass < PASS_COUNT && path->kernels[i].kind == TRACE_KERNEL; pass++)
            launched += path->kernels[i].in[pass].ns;
    if (categories)
        TRY(expect_same("table categories: the sum of device_ns", column_sum(categories, "device_ns"),
                        steps * path->step.device));
    if (kernels)
        TRY(expect_same("table kernels: the sum of total_ns", column_sum(kernels, "total_ns"),
                        steps * launched));
    if (model)
        TRY(expect_same("table model: the steps' cpu_ns",
                        cell(model, row_of(model, "phase", MODEL_STEPS), "cpu_ns"),
                        steps * path->step.traced));
    return perf ? check_perf(perf, &path->step) : OK;
}

/* ---- the audit ---- */

/* The value of a check, recomputed from the bundle's own figures; NAN if they do not suffice. */
static double found_of(const Bundle *b, const BundlePath *path, const char *check) {
    if (strcmp(check, CHECK_COVERED) == 0) return 1 - path->step.covered;
    if (strcmp(check, CHECK_OVERHEAD) == 0) return path->step.overhead_noise ? 0 : path->step.overhead;
    double phases = 0, above = 0;
    for (int64_t i = 0; i < path->phases_count; i++) phases += path->phases[i].ns;
    for (int64_t i = 0; i < path->rows_count; i++)
        above +=
            limit_share(trace_utmost(&b->run), path->rows[i].work, path->rows[i].calls, path->rows[i].ns) > 1;
    if (strcmp(check, CHECK_PHASES) == 0) return fabs(phases / path->step.traced - 1);
    return strcmp(check, CHECK_LIMITS) == 0 ? above : NAN;
}

static Status check_finding(const Bundle *b, const BundlePath *path, const TraceFinding *finding) {
    const double found = found_of(b, path, finding->name);
    if (isfinite(found)) TRY(expect_same("found", finding->found, found));
    if (finding->passed == (finding->found <= finding->allowed)) return OK;
    return fail(ERROR_FORMAT, "passed: %s, but %.6g was found and %.6g is allowed",
                finding->passed ? "true" : "false", finding->found, finding->allowed);
}

/* In older bundles the audit has no figures. */
static Status check_audit(const Bundle *b, const BundlePath *path) {
    bool has_figures = false;
    for (int64_t i = 0; i < path->audit_count; i++) has_figures = has_figures || path->audit[i].allowed > 0;
    for (int64_t i = 0; has_figures && i < path->audit_count; i++)
        TRY(fail_at(check_finding(b, path, &path->audit[i]), "audit: %s", path->audit[i].name));
    return OK;
}

/* ---- all ---- */

static Status check_path(const Bundle *b, const BundlePath *path) {
    TRY(check_operations(b, path));
    TRY(check_kernels(path));
    TRY(check_phases(path));
    TRY(check_memory(path));
    TRY(check_tables(path));
    return check_audit(b, path);
}

/* Differences must belong to operations that ran. */
static Status check_differences(const Bundle *b) {
    for (int64_t i = 0; i < b->differences_count; i++) {
        const Difference *d = &b->differences[i];
        const Figures figures = {.rows = b->paths[0].rows, .row_count = b->paths[0].rows_count};
        if (!figures_find(&figures, d->call, d->operation, d->pass))
            return fail(ERROR_FORMAT, "differences[%lld]: no such operation ran", (long long)i);
    }
    return OK;
}

Status bundle_check(const Bundle *b) {
    for (int64_t i = 0; i < b->paths_count; i++)
        TRY(fail_at(check_path(b, &b->paths[i]), "paths[%lld]", (long long)i));
    const BundleStep *step = &b->paths[0].step;
    TRY(expect_same("summary.total_cuda_time_ms", 1e6 * b->guide.device_ms,
                    (double)step->recorded * step->device));
    return check_differences(b);
}
