#include "report/diff.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/stats.h"
#include "base/wrap.h"
#include "report/provenance.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Changes within NOISE are not called slower or faster. SURE is the error probability of each of the
 * tests of runs_ratio for sides that do not differ, of the step and of all rows together (Bonferroni). */
static const double NOISE = 0.01, SURE = 0.008;

/* ---- limits ---- */

Status diff_limit_parse(const char *text, DiffLimit *limit) {
    size_t length = strcspn(text, "<>");
    const char *sign = text + length, *number = *sign ? sign + 1 : sign;
    char *end = NULL;
    double percent = (*number == '+' || *number == '-') ? strtod(number, &end) : NAN;
    while (length && text[length - 1] == ' ') length--;
    *limit = (DiffLimit){.above = *sign == '>', .share = percent / 100};
    bool right_sign = (*sign == '>') == (*number == '+');
    if (!length || length >= sizeof limit->figure || !right_sign || !isfinite(percent) ||
        strcmp(end, "%") != 0)
        return fail(ERROR_USAGE, "--fail-if=%s: write a figure, > or <, and a signed percentage: step>+3%%",
                    text);
    memcpy(limit->figure, text, length);
    return OK;
}

/* ---- figures of runs ---- */

static const BundlePath *path_like(const Bundle *bundle, const BundlePath *path) {
    for (int64_t i = 0; i < bundle->paths_count; i++)
        if (strcmp(bundle->paths[i].label, path->label) == 0) return &bundle->paths[i];
    return bundle->paths_count == 1 ? &bundle->paths[0] : NULL;
}

static const OperationRow *find(const BundlePath *path, const OperationRow *row) {
    for (int64_t i = 0; path && i < path->rows_count; i++) {
        const OperationRow *r = &path->rows[i];
        if (r->pass == row->pass && strcmp(r->operation, row->operation) == 0 &&
            strcmp(r->call, row->call) == 0)
            return r;
    }
    return NULL;
}

/* Growth as a share; growth from zero counts as 1. */
static double growth(double before, double after) {
    return before > 0 ? after / before - 1 : after > 0 ? 1 : 0;
}

/* One figure from each run of a side. Times of runs that shared their cores with other processes are left
 * out. */
typedef struct {
    double values[DIFF_RUNS_MOST];
    int64_t count;
    bool exact; // measured without noise: bytes, launches
} Figure;

static double middle(const Figure *f) {
    double sorted[DIFF_RUNS_MOST];
    memcpy(sorted, f->values, sizeof sorted);
    return median(sorted, f->count);
}

static bool quiet(const BundlePath *path) {
    return path->step.cores_waited <= CORES_SHARED;
}

/* "attention", or "attention backward" */
static bool names_row(const char *figure, const OperationRow *row) {
    size_t length = strlen(row->call);
    if (strncmp(figure, row->call, length) != 0) return false;
    return figure[length] == 0 ||
           (figure[length] == ' ' && strcmp(figure + length + 1, pass_name(row->pass)) == 0);
}

/* Older bundles have no median. */
static double row_ns(const OperationRow *row) {
    return row->median > 0 ? row->median : row->ns;
}

/* A run's figure of this name; false: it has none. */
static bool named_value(const BundlePath *path, const char *name, double *value) {
    bool found = true;
    *value = 0;
    if (strcmp(name, "step") == 0)
        *value = path->step.ns;
    else if (strcmp(name, "memory") == 0)
        *value = (double)path->peak_bytes;
    else if (strcmp(name, "launches") == 0)
        *value = path->step.launches;
    else {
        found = false;
        for (int64_t i = 0; i < path->rows_count; i++) {
            if (!names_row(name, &path->rows[i])) continue;
            *value += row_ns(&path->rows[i]);
            found = true;
        }
    }
    return found;
}

static bool row_value(const BundlePath *path, const OperationRow *row, double *value) {
    const OperationRow *own = find(path, row);
    *value = own ? row_ns(own) : 0;
    return own != NULL;
}

/* A figure of this name, or of a row, from all runs of a side that have such a path. If every run shared its
 * cores, all runs are used, and judge reports the result as undecidable. */
static Figure figure_of(const DiffSide *side, const BundlePath *like, const char *name,
                        const OperationRow *row) {
    Figure f = {.exact = !row && (strcmp(name, "memory") == 0 || strcmp(name, "launches") == 0)};
    for (int all = f.exact; all < 2 && f.count == 0; all++)
        for (int i = 0; i < side->count; i++) {
            const BundlePath *path = path_like(&side->runs[i], like);
            double value;
            if (!path || (!all && !quiet(path))) continue;
            if (row ? row_value(path, row, &value) : named_value(path, name, &value))
                f.values[f.count++] = value;
        }
    return f;
}

static bool any_quiet(const DiffSide *side, const BundlePath *like) {
    int count = 0;
    for (int i = 0; i < side->count; i++) {
        const BundlePath *path = path_like(&side->runs[i], like);
        count += path && quiet(path);
    }
    return count > 0;
}

/* The paths of one label on both sides. */
typedef struct {
    const DiffSide *sides[2];
    const BundlePath *first[2]; // the path of each side's first run
    bool quiet;                 // each side has a run that did not share its cores
} Pair;

/* `many` is the number of figures that are judged together. */
static DiffKind judge(const Pair *pair, const Figure *a, const Figure *b, double many, RunsRatio *sure) {
    *sure = runs_ratio(a->values, a->count, b->values, b->count);
    double before = middle(a), after = middle(b);
    DiffKind changed = after > before ? DIFF_SLOWER : DIFF_FASTER;
    if (a->exact) return after == before ? DIFF_SAME : changed;
    if (!pair->quiet || a->count < 2 || b->count < 2) return DIFF_UNKNOWN;
    bool far = fabs(sure->ratio - 1) > NOISE && sure->chance < SURE / many;
    return !far ? DIFF_SAME : sure->ratio > 1 ? DIFF_SLOWER : DIFF_FASTER;
}

/* ---- a path ---- */

static const char *kind_name(DiffKind kind) {
    static const char *const names[DIFF_KIND_COUNT] = {"added",  "removed", "slower",
                                                       "faster", "same",    "unknown"};
    return names[kind];
}

static void print_figure(const char *name, const char *pass, const Figure *a, const Figure *b, DiffKind kind,
                         const RunsRatio *sure, FILE *file) {
    char interval[40] = "";
    double before = a->count ? middle(a) : 0, after = b->count ? middle(b) : 0;
    if (a->count > 1 && b->count > 1)
        snprintf(interval, sizeof interval, "%+.1f to %+.1f%%", 100 * (sure->low - 1),
                 100 * (sure->high - 1));
    fprintf(file, "%-24.64s %-8.16s %12.4f %12.4f %+8.1f%%  %18s  %s\n", name, pass, 1e-6 * before,
            1e-6 * after, 100 * growth(before, after), interval, kind_name(kind));
}

static void print_row(const Pair *pair, const OperationRow *row, int counts[DIFF_KIND_COUNT], FILE *file) {
    const Figure a = figure_of(pair->sides[0], pair->first[0], "", row),
                 b = figure_of(pair->sides[1], pair->first[1], "", row);
    RunsRatio sure = {0};
    DiffKind kind = a.count == 0   ? DIFF_ADDED
                    : b.count == 0 ? DIFF_REMOVED
                                   : judge(pair, &a, &b, (double)pair->first[0]->rows_count, &sure);
    counts[kind]++;
    print_figure(row->call, pass_name(row->pass), &a, &b, kind, &sure, file);
}

static void print_steps(const Pair *pair, FILE *file) {
    const BundleStep *a = &pair->first[0]->step, *b = &pair->first[1]->step;
    const Figure before = figure_of(pair->sides[0], pair->first[0], "step", NULL),
                 after = figure_of(pair->sides[1], pair->first[1], "step", NULL);
    RunsRatio sure;
    DiffKind kind = judge(pair, &before, &after, 1, &sure);
    const char *tracing = a->timed && b->timed ? "off" : a->timed || b->timed ? "on in one" : "on";
    print_figure("step, tracing", tracing, &before, &after, kind, &sure, file);
    if (before.count > 1 && after.count > 1) return;
    print_report("", 0, file,
                 "fewer than two undisturbed runs on a side: the spread between processes is unknown, so "
                 "times are not judged. Within a run a step varies by %.1f%%, so smaller changes cannot be "
                 "detected. Give several runs: profile diff A1 A2 A3 vs B1 B2 B3",
                 100 * fmax(ratio(a->spread, a->ns), ratio(b->spread, b->ns)));
}

static void print_path(const Pair *pair, FILE *file) {
    int counts[DIFF_KIND_COUNT] = {0};
    const BundlePath *before = pair->first[0], *after = pair->first[1];
    fprintf(file, "%-24s %-8s %12s %12s %9s  %18s  medians of %d and %d runs\n", before->label, "pass",
            "before, ms", "after, ms", "change", "95% interval", pair->sides[0]->count,
            pair->sides[1]->count);
    for (int64_t i = 0; i < before->rows_count; i++) print_row(pair, &before->rows[i], counts, file);
    for (int64_t i = 0; i < after->rows_count; i++)
        if (!find(before, &after->rows[i])) print_row(pair, &after->rows[i], counts, file);
    print_steps(pair, file);
    fprintf(file, "%-33s %8.1f MiB %8.1f MiB %+8.1f%%\n", "memory in use",
            (double)before->peak_bytes / 1048576, (double)after->peak_bytes / 1048576,
            100 * growth((double)before->peak_bytes, (double)after->peak_bytes));
    fprintf(file, "%d added, %d removed, %d slower, %d faster, %d the same within noise", counts[DIFF_ADDED],
            counts[DIFF_REMOVED], counts[DIFF_SLOWER], counts[DIFF_FASTER], counts[DIFF_SAME]);
    if (counts[DIFF_UNKNOWN]) fprintf(file, ", %d undecided", counts[DIFF_UNKNOWN]);
    fprintf(file, "\n");
}

/* ---- limits ---- */

/* Whether a change exceeds the limit. A change that may be chance, or is undecidable, does not. */
static bool passed_limit(const Pair *pair, const DiffLimit *limit, FILE *file, bool *known) {
    const Figure a = figure_of(pair->sides[0], pair->first[0], limit->figure, NULL),
                 b = figure_of(pair->sides[1], pair->first[1], limit->figure, NULL);
    RunsRatio sure;
    *known |= a.count || b.count;
    double grown = growth(a.count ? middle(&a) : 0, b.count ? middle(&b) : 0);
    if (limit->above ? grown <= limit->share : grown >= limit->share) return false;
    DiffKind kind = a.count && b.count ? judge(pair, &a, &b, 1, &sure) : a.count ? DIFF_REMOVED : DIFF_ADDED;
    const bool fails = kind != DIFF_SAME && kind != DIFF_UNKNOWN;
    fprintf(file, "%s %s: %s changed by %+.2f%%, the limit is %s%+.2f%%%s\n", fails ? "FAIL" : "passed",
            pair->first[1]->label, limit->figure, 100 * grown, limit->above ? ">" : "<", 100 * limit->share,
            kind == DIFF_SAME      ? ", but that is within noise; more runs would decide"
            : kind == DIFF_UNKNOWN ? ", but these runs cannot decide it"
                                   : "");
    return fails;
}

/* ---- all ---- */

static void print_head(const DiffSide sides[2], FILE *file) {
    for (int i = 0; i < 2; i++) {
        const TraceRun *run = &sides[i].runs[0].run;
        fprintf(file, "%s %s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s\n",
                i ? "after: " : "before:", run->model, run->batch, run->seq, run->dtype, run->device);
    }
}

static void print_shared(const char *when, const DiffSide *side, const BundlePath *like, FILE *file) {
    for (int i = 0; i < side->count; i++) {
        const BundlePath *path = path_like(&side->runs[i], like);
        if (path && !quiet(path))
            fprintf(file, "%s, run %d, %s: %s\n", when, i + 1, path->label,
                    cores_warning(path->step.cores_waited).text);
    }
}

static const BundlePath *partner(const Bundle *before, const Bundle *after, const BundlePath *path) {
    const BundlePath *other = path_like(after, path);
    bool named = other && strcmp(other->label, path->label) == 0;
    return named || before->paths_count == 1 ? other : NULL;
}

Status diff_bundles(const DiffSide sides[2], const DiffLimit *limits, int limit_count, FILE *file,
                    int *exceeded) {
    const Bundle *before = &sides[0].runs[0], *after = &sides[1].runs[0];
    int compared = 0;
    *exceeded = 0;
    OWNED bool *known = memory_array((size_t)limit_count + 1, sizeof *known);
    print_head(sides, file);
    provenance_print_differences(&before->run, &after->run, file);
    for (int64_t i = 0; i < before->paths_count; i++) {
        const BundlePath *a = &before->paths[i], *b = partner(before, after, a);
        if (!b) {
            fprintf(file, "\n%s: not compared, the second profile has no such path\n", a->label);
            continue;
        }
        const Pair pair = {
            {&sides[0], &sides[1]}, {a, b}, any_quiet(&sides[0], a) && any_quiet(&sides[1], b)};
        compared++;
        fprintf(file, "\n");
        print_shared("before", &sides[0], a, file);
        print_shared("after", &sides[1], b, file);
        print_path(&pair, file);
        for (int k = 0; k < limit_count; k++) *exceeded += passed_limit(&pair, &limits[k], file, &known[k]);
    }
    for (int64_t i = 0; i < after->paths_count; i++)
        if (!partner(after, before, &after->paths[i]))
            fprintf(file, "\n%s: not compared, the first profile has no such path\n", after->paths[i].label);
    Status status = compared ? OK : fail(ERROR_USAGE, "the two profiles have no path in common");
    for (int k = 0; k < limit_count && !status; k++)
        if (!known[k])
            status = fail(ERROR_USAGE,
                          "--fail-if: neither profile has a figure '%s'; there are step, memory, "
                          "launches and the calls of operations",
                          limits[k].figure);
    return status;
}
