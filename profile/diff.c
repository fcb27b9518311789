#include "profile/diff.h"

#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NOISE = 0.01; // share of the time within which nothing is called slower or faster

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

/* ---- rows ---- */

static const OperationRow *find(const BundlePath *path, const OperationRow *row) {
    for (int64_t i = 0; i < path->rows_count; i++) {
        const OperationRow *r = &path->rows[i];
        if (r->operation == row->operation && r->pass == row->pass && strcmp(r->call, row->call) == 0)
            return r;
    }
    return NULL;
}

/* Growth as a share; from nothing to something is given as all of it. */
static double growth(double before, double after) {
    return before > 0 ? after / before - 1 : after > 0 ? 1 : 0;
}

static DiffKind judge(double before, double before_low, double before_high, double after, double after_low,
                      double after_high) {
    if (fabs(growth(before, after)) <= NOISE) return DIFF_SAME;
    if (after_low > before_high) return DIFF_SLOWER;
    if (after_high < before_low) return DIFF_FASTER;
    return DIFF_SAME;
}

static const char *kind_name(DiffKind kind) {
    static const char *const names[DIFF_KIND_COUNT] = {"added", "removed", "slower", "faster", "same"};
    return names[kind];
}

static void print_row(const OperationRow *before, const OperationRow *after, DiffKind kind, FILE *file) {
    const OperationRow *any = before ? before : after;
    double a = before ? before->ns : 0, b = after ? after->ns : 0;
    fprintf(file, "%-24.64s %-8.16s %12.4f %12.4f %+8.1f%%  %-8s launches %.0f to %.0f\n", any->call,
            pass_name(any->pass), 1e-6 * a, 1e-6 * b, 100 * growth(a, b), kind_name(kind),
            before ? before->launches : 0, after ? after->launches : 0);
}

static void print_path(const BundlePath *before, const BundlePath *after, FILE *file) {
    int counts[DIFF_KIND_COUNT] = {0};
    fprintf(file, "%-24s %-8s %12s %12s %9s\n", before->label, "pass", "before, ms", "after, ms", "change");
    for (int64_t i = 0; i < before->rows_count; i++) {
        const OperationRow *a = &before->rows[i], *b = find(after, a);
        DiffKind kind = b ? judge(a->ns, a->low, a->high, b->ns, b->low, b->high) : DIFF_REMOVED;
        counts[kind]++;
        print_row(a, b, kind, file);
    }
    for (int64_t i = 0; i < after->rows_count; i++) {
        const OperationRow *b = &after->rows[i];
        if (find(before, b)) continue;
        counts[DIFF_ADDED]++;
        print_row(NULL, b, DIFF_ADDED, file);
    }
    const BundleStep *a = &before->step, *b = &after->step;
    DiffKind step = judge(a->ns, a->low, a->high, b->ns, b->low, b->high);
    const char *name = a->timed && b->timed   ? "step, tracing off"
                       : a->timed || b->timed ? "step, tracing on in one of them"
                                              : "step, tracing on in both";
    fprintf(file, "%-33s %12.4f %12.4f %+8.1f%%  %-8s %.4f to %.4f, then %.4f to %.4f ms\n", name,
            1e-6 * a->ns, 1e-6 * b->ns, 100 * growth(a->ns, b->ns), kind_name(step), 1e-6 * a->low,
            1e-6 * a->high, 1e-6 * b->low, 1e-6 * b->high);
    fprintf(file, "%-33s %8.1f MiB %8.1f MiB %+8.1f%%\n", "peak memory", (double)before->peak_bytes / 1048576,
            (double)after->peak_bytes / 1048576,
            100 * growth((double)before->peak_bytes, (double)after->peak_bytes));
    fprintf(file, "%d added, %d removed, %d slower, %d faster, %d the same within noise\n",
            counts[DIFF_ADDED], counts[DIFF_REMOVED], counts[DIFF_SLOWER], counts[DIFF_FASTER],
            counts[DIFF_SAME]);
}

/* ---- figures that limits name ---- */

/* "attention", or "attention backward" */
static bool names_row(const char *figure, const OperationRow *row) {
    size_t length = strlen(row->call);
    if (strncmp(figure, row->call, length) != 0) return false;
    return figure[length] == 0 ||
           (figure[length] == ' ' && strcmp(figure + length + 1, pass_name(row->pass)) == 0);
}

/* False: the path has no such figure. */
static bool figure_of(const BundlePath *path, const char *name, double *value) {
    *value = 0;
    if (strcmp(name, "step") == 0)
        *value = path->step.ns;
    else if (strcmp(name, "memory") == 0)
        *value = (double)path->peak_bytes;
    else if (strcmp(name, "launches") == 0)
        *value = path->step.launches;
    else {
        bool found = false;
        for (int64_t i = 0; i < path->rows_count; i++) {
            if (!names_row(name, &path->rows[i])) continue;
            *value += path->rows[i].ns;
            found = true;
        }
        return found;
    }
    return true;
}

static bool passed_limit(const BundlePath *before, const BundlePath *after, const DiffLimit *limit,
                         FILE *file, bool *known) {
    double a, b;
    bool there = figure_of(before, limit->figure, &a), here = figure_of(after, limit->figure, &b);
    *known |= there || here;
    double grown = growth(a, b);
    bool exceeded = limit->above ? grown > limit->share : grown < limit->share;
    if (exceeded)
        fprintf(file, "FAIL %s: %s changed by %+.2f%%, the limit is %s%+.2f%%\n", after->label, limit->figure,
                100 * grown, limit->above ? ">" : "<", 100 * limit->share);
    return exceeded;
}

/* ---- all ---- */

static const BundlePath *partner(const Bundle *before, const Bundle *after, const BundlePath *path) {
    for (int64_t i = 0; i < after->paths_count; i++)
        if (strcmp(after->paths[i].label, path->label) == 0) return &after->paths[i];
    return before->paths_count == 1 && after->paths_count == 1 ? &after->paths[0] : NULL;
}

static void print_head(const Bundle *before, const Bundle *after, FILE *file) {
    const Bundle *both[2] = {before, after};
    for (int i = 0; i < 2; i++)
        fprintf(file, "%s %s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s\n",
                i ? "after: " : "before:", both[i]->run.model, both[i]->run.batch, both[i]->run.seq,
                both[i]->run.dtype, both[i]->run.device);
}

Status diff_bundles(const Bundle *before, const Bundle *after, const DiffLimit *limits, int limit_count,
                    FILE *file, int *exceeded) {
    int compared = 0;
    *exceeded = 0;
    bool *known = memory_array((size_t)limit_count + 1, sizeof *known);
    print_head(before, after, file);
    for (int64_t i = 0; i < before->paths_count; i++) {
        const BundlePath *a = &before->paths[i], *b = partner(before, after, a);
        if (!b) {
            fprintf(file, "\n%s: not compared, the second profile has no such path\n", a->label);
            continue;
        }
        compared++;
        fprintf(file, "\n");
        print_path(a, b, file);
        for (int k = 0; k < limit_count; k++) *exceeded += passed_limit(a, b, &limits[k], file, &known[k]);
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
    memory_free(known);
    return status;
}
