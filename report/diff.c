#include "report/diff.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/stats.h"

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
        if (r->pass == row->pass && strcmp(r->operation, row->operation) == 0 &&
            strcmp(r->call, row->call) == 0)
            return r;
    }
    return NULL;
}

/* Growth as a share; from nothing to something is given as all of it. */
static double growth(double before, double after) {
    return before > 0 ? after / before - 1 : after > 0 ? 1 : 0;
}

/* What is compared, with what is known of its noise. */
typedef struct {
    double value;
    Sampled noise;
    bool exact; // it has none: bytes, launches
} Figure;

/* An older bundle has no spread, nor a median. */
static Figure figure_of_row(const BundlePath *path, const OperationRow *row) {
    bool known = row->median > 0;
    return (Figure){
        known ? row->median : row->ns, {row->median, row->spread, known ? path->step.recorded : 0}, false};
}

static Figure figure_of_step(const BundleStep *s) {
    bool known = s->spread > 0 || s->low == s->high;
    return (Figure){s->ns, {s->ns, s->spread, !known ? 0 : s->timed > 0 ? s->timed : s->recorded}, false};
}

static DiffKind judge(Figure before, Figure after) {
    DiffKind changed = after.value > before.value ? DIFF_SLOWER : DIFF_FASTER;
    if (fabs(growth(before.value, after.value)) <= (before.exact ? 0 : NOISE)) return DIFF_SAME;
    if (before.exact) return changed;
    if (before.noise.count < 2 || after.noise.count < 2) return DIFF_UNKNOWN;
    return medians_differ(before.noise, after.noise) ? changed : DIFF_SAME;
}

static const char *kind_name(DiffKind kind) {
    static const char *const names[DIFF_KIND_COUNT] = {"added",  "removed", "slower",
                                                       "faster", "same",    "unknown"};
    return names[kind];
}

static void print_row(const BundlePath *before, const OperationRow *a, const BundlePath *after,
                      const OperationRow *b, DiffKind kind, FILE *file) {
    const OperationRow *any = a ? a : b;
    double was = a ? figure_of_row(before, a).value : 0, is = b ? figure_of_row(after, b).value : 0;
    fprintf(file, "%-24.64s %-8.16s %12.4f %12.4f %+8.1f%%  %-8s launches %.0f to %.0f\n", any->call,
            pass_name(any->pass), 1e-6 * was, 1e-6 * is, 100 * growth(was, is), kind_name(kind),
            a ? a->launches : 0, b ? b->launches : 0);
}

static void print_step(const BundlePath *before, const BundlePath *after, FILE *file) {
    const BundleStep *a = &before->step, *b = &after->step;
    DiffKind kind = judge(figure_of_step(a), figure_of_step(b));
    const char *name = a->timed && b->timed   ? "step, tracing off"
                       : a->timed || b->timed ? "step, tracing on in one of them"
                                              : "step, tracing on in both";
    fprintf(file, "%-33s %12.4f %12.4f %+8.1f%%  %-8s %.4f to %.4f, then %.4f to %.4f ms\n", name,
            1e-6 * a->ns, 1e-6 * b->ns, 100 * growth(a->ns, b->ns), kind_name(kind), 1e-6 * a->low,
            1e-6 * a->high, 1e-6 * b->low, 1e-6 * b->high);
}

static void print_path(const BundlePath *before, const BundlePath *after, FILE *file) {
    int counts[DIFF_KIND_COUNT] = {0};
    fprintf(file, "%-24s %-8s %12s %12s %9s  medians\n", before->label, "pass", "before, ms", "after, ms",
            "change");
    for (int64_t i = 0; i < before->rows_count; i++) {
        const OperationRow *a = &before->rows[i], *b = find(after, a);
        DiffKind kind = b ? judge(figure_of_row(before, a), figure_of_row(after, b)) : DIFF_REMOVED;
        counts[kind]++;
        print_row(before, a, after, b, kind, file);
    }
    for (int64_t i = 0; i < after->rows_count; i++) {
        const OperationRow *b = &after->rows[i];
        if (find(before, b)) continue;
        counts[DIFF_ADDED]++;
        print_row(before, NULL, after, b, DIFF_ADDED, file);
    }
    print_step(before, after, file);
    fprintf(file, "%-33s %8.1f MiB %8.1f MiB %+8.1f%%\n", "peak memory", (double)before->peak_bytes / 1048576,
            (double)after->peak_bytes / 1048576,
            100 * growth((double)before->peak_bytes, (double)after->peak_bytes));
    fprintf(file, "%d added, %d removed, %d slower, %d faster, %d the same within noise", counts[DIFF_ADDED],
            counts[DIFF_REMOVED], counts[DIFF_SLOWER], counts[DIFF_FASTER], counts[DIFF_SAME]);
    if (counts[DIFF_UNKNOWN])
        fprintf(file, ", %d of unknown noise: one step, or an older bundle", counts[DIFF_UNKNOWN]);
    fprintf(file, "\n");
}

/* ---- figures that limits name ---- */

/* "attention", or "attention backward" */
static bool names_row(const char *figure, const OperationRow *row) {
    size_t length = strlen(row->call);
    if (strncmp(figure, row->call, length) != 0) return false;
    return figure[length] == 0 ||
           (figure[length] == ' ' && strcmp(figure + length + 1, pass_name(row->pass)) == 0);
}

/* Of several rows their sum, whose noise is all of theirs. */
static void add_figure(Figure *sum, Figure row) {
    sum->value += row.value;
    sum->noise.median += row.noise.median;
    sum->noise.spread = hypot(sum->noise.spread, row.noise.spread);
    sum->noise.count = row.noise.count;
}

/* False: the path has no such figure. */
static bool figure_of(const BundlePath *path, const char *name, Figure *figure) {
    bool found = true;
    *figure = (Figure){.exact = true};
    if (strcmp(name, "step") == 0)
        *figure = figure_of_step(&path->step);
    else if (strcmp(name, "memory") == 0)
        figure->value = (double)path->peak_bytes;
    else if (strcmp(name, "launches") == 0)
        figure->value = path->step.launches;
    else {
        found = figure->exact = false;
        for (int64_t i = 0; i < path->rows_count; i++) {
            if (!names_row(name, &path->rows[i])) continue;
            add_figure(figure, figure_of_row(path, &path->rows[i]));
            found = true;
        }
    }
    return found;
}

/* What has changed by more than the limit exceeds it, unless chance can have done that. */
static bool passed_limit(const BundlePath *before, const BundlePath *after, const DiffLimit *limit,
                         FILE *file, bool *known) {
    Figure a, b;
    bool there = figure_of(before, limit->figure, &a), here = figure_of(after, limit->figure, &b);
    *known |= there || here;
    double grown = growth(a.value, b.value);
    if (limit->above ? grown <= limit->share : grown >= limit->share) return false;
    DiffKind kind = there && here ? judge(a, b) : there ? DIFF_REMOVED : DIFF_ADDED;
    fprintf(file, "%s %s: %s changed by %+.2f%%, the limit is %s%+.2f%%%s\n",
            kind == DIFF_SAME ? "passed" : "FAIL", after->label, limit->figure, 100 * grown,
            limit->above ? ">" : "<", 100 * limit->share,
            kind == DIFF_SAME      ? ", but that is within noise; more steps would tell"
            : kind == DIFF_UNKNOWN ? "; its noise is not known"
                                   : "");
    return kind != DIFF_SAME;
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

/* Noise that other programs made is in no run's own spread. */
static void print_shared(const char *when, const BundlePath *path, FILE *file) {
    if (path->step.cores_waited > CORES_SHARED)
        fprintf(file, "%s, %s: %s\n", when, path->label, cores_warning(path->step.cores_waited).text);
}

/* Of two configurations, what is compared is not one thing before and after. */
static void print_differences(const TraceRun *a, const TraceRun *b, FILE *file) {
    const struct {
        const char *name, *before, *after;
    } texts[] = {{"program", a->program, b->program}, {"model", a->model, b->model},
                 {"precision", a->dtype, b->dtype},   {"device", a->device, b->device},
                 {"library", a->library, b->library}, {"processor", a->host, b->host}};
    const struct {
        const char *name;
        int64_t before, after;
    } counts[] = {{"batch", a->batch, b->batch},
                  {"seq", a->seq, b->seq},
                  {"accum", a->accum, b->accum},
                  {"layers", a->layers, b->layers},
                  {"heads", a->heads, b->heads},
                  {"width", a->width, b->width},
                  {"parameters", a->parameters, b->parameters}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].before && texts[i].after && strcmp(texts[i].before, texts[i].after) != 0)
            fprintf(file, "DIFFERENT %s: %s, then %s\n", texts[i].name, texts[i].before, texts[i].after);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].before != counts[i].after)
            fprintf(file, "DIFFERENT %s: %" PRId64 ", then %" PRId64 "\n", counts[i].name, counts[i].before,
                    counts[i].after);
}

Status diff_bundles(const Bundle *before, const Bundle *after, const DiffLimit *limits, int limit_count,
                    FILE *file, int *exceeded) {
    int compared = 0;
    *exceeded = 0;
    bool *known = memory_array((size_t)limit_count + 1, sizeof *known);
    print_head(before, after, file);
    print_differences(&before->run, &after->run, file);
    for (int64_t i = 0; i < before->paths_count; i++) {
        const BundlePath *a = &before->paths[i], *b = partner(before, after, a);
        if (!b) {
            fprintf(file, "\n%s: not compared, the second profile has no such path\n", a->label);
            continue;
        }
        compared++;
        fprintf(file, "\n");
        print_shared("before", a, file);
        print_shared("after", b, file);
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
