#include "report/questions.h"

#include "base/memory.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- 5: what each fusion saves ---- */

typedef struct {
    const OperationRow *naive, *fused;
} Pair;

static int larger_saving(const void *a, const void *b) {
    const Pair *x = a, *y = b;
    double p = x->naive->ns - x->fused->ns, q = y->naive->ns - y->fused->ns;
    return (p < q) - (p > q);
}

static void saving_of_time(const Profile *profile, Pair pair, Answer *a) {
    const OperationRow *n = pair.naive, *f = pair.fused;
    const Difference *d = profile_difference(profile, n);
    char difference[64] = "difference not taken";
    if (d && isfinite(d->difference))
        snprintf(difference, sizeof difference, "difference %.1e", d->difference);
    if (f->form == FORM_NAIVE) {
        answer_line(a, "%s %s: nothing, it has no fused form here", n->call, pass_name(n->pass));
        return;
    }
    answer_line(a, "%s %s: %s of %s (%.2f times as fast), launches %.0f to %.0f, least bytes %s, %s", n->call,
                pass_name(n->pass), in_words(CELL_TIME, n->ns - f->ns).text, in_words(CELL_TIME, n->ns).text,
                ratio(n->ns, f->ns), n->launches, f->launches, in_words(CELL_BYTES, n->work.bytes).text,
                difference);
}

static void saving(const Profile *profile, Pair pair, Answer *a) {
    const OperationRow *n = pair.naive, *f = pair.fused;
    saving_of_time(profile, pair, a);
    if (n->memory != f->memory)
        answer_line(a, "%s %s: peak memory of a call %s to %s", n->call, pass_name(n->pass),
                    in_words(CELL_BYTES, (double)n->memory).text,
                    in_words(CELL_BYTES, (double)f->memory).text);
}

/* Time of operations that only one of the paths has, such as a decoding step fused into one operation. */
static void saving_of_others(const Figures *naive, const Figures *fused, Answer *a) {
    double ns[FORM_COUNT] = {0}, launches[FORM_COUNT] = {0};
    const char *call[FORM_COUNT] = {NULL};
    const Figures *paths[FORM_COUNT] = {naive, fused};
    int rows[FORM_COUNT] = {0};
    for (int form = 0; form < FORM_COUNT; form++)
        for (int64_t i = 0; i < paths[form]->row_count; i++) {
            const OperationRow *r = &paths[form]->rows[i];
            if (figures_find(paths[!form], r->call, r->operation, r->pass)) continue;
            ns[form] += r->ns;
            launches[form] += r->launches;
            call[form] = r->call;
            rows[form]++;
        }
    if (rows[FORM_NAIVE] && rows[FORM_FUSED])
        answer_line(a, "%s%s in place of %d operations: %s of %s (%.2f times as fast), launches %.0f to %.0f",
                    call[FORM_FUSED], rows[FORM_FUSED] > 1 ? " and others" : "", rows[FORM_NAIVE],
                    in_words(CELL_TIME, ns[FORM_NAIVE] - ns[FORM_FUSED]).text,
                    in_words(CELL_TIME, ns[FORM_NAIVE]).text, ratio(ns[FORM_NAIVE], ns[FORM_FUSED]),
                    launches[FORM_NAIVE], launches[FORM_FUSED]);
}

static void savings_in_all(const Profile *profile, Answer *a) {
    const Figures *n = &profile->paths[0].figures, *f = &profile->paths[1].figures;
    const Difference *most = NULL;
    for (int i = 0; i < profile->difference_count; i++) {
        const Difference *d = &profile->differences[i];
        if (isfinite(d->difference) && (!most || d->difference > most->difference)) most = d;
    }
    answer_line(a,
                "in all: the median step %.3f to %.3f ms (%.2f times as fast), launches %.0f to %.0f, memory "
                "in use %s "
                "to %s (saved activations %s to %s, scratch %s to %s)",
                n->step_ms, f->step_ms, ratio(n->step_ms, f->step_ms), n->launches, f->launches,
                in_words(CELL_BYTES, (double)n->peak_bytes).text,
                in_words(CELL_BYTES, (double)f->peak_bytes).text,
                in_words(CELL_BYTES, (double)n->peak_classes[MEMORY_SAVED]).text,
                in_words(CELL_BYTES, (double)f->peak_classes[MEMORY_SAVED]).text,
                in_words(CELL_BYTES, (double)n->peak_classes[MEMORY_SCRATCH]).text,
                in_words(CELL_BYTES, (double)f->peak_classes[MEMORY_SCRATCH]).text);
    if (most)
        answer_line(a, "largest difference of an output: %.1e, of %s %s", most->difference, most->call,
                    pass_name(most->pass));
}

void question_savings(const Profile *profile, Answer *a) {
    if (profile->count < 2) {
        answer_line(a, "only one path ran; --compare runs the naive and the fused one side by side");
        return;
    }
    const Figures *naive = &profile->paths[0].figures, *fused = &profile->paths[1].figures;
    OWNED Pair *pairs = memory_array((size_t)naive->row_count + 1, sizeof *pairs);
    int64_t count = 0;
    for (int64_t i = 0; i < naive->row_count; i++) {
        const OperationRow *n = &naive->rows[i], *f = figures_find(fused, n->call, n->operation, n->pass);
        if (f) pairs[count++] = (Pair){n, f};
    }
    qsort(pairs, (size_t)count, sizeof *pairs, larger_saving);
    for (int64_t i = 0; i < count; i++) saving(profile, pairs[i], a);
    saving_of_others(naive, fused, a);
    savings_in_all(profile, a);
}

/* ---- 6: what limits the step ---- */

enum { TINY_NS = 5000 };
static const double STARVED = 0.05, IDLE = 0.15; // shares of the step above which a cause is named

typedef struct {
    double reader, idle;   // shares of the step
    double matrix, memory; // ns limited by the matrix rate, and by memory
    double least;          // ns that all operations need at this machine's limits
    double kernels, tiny;  // per step
    double waits, wait_ns; // host calls that wait for the device, per step
    double copies, copied; // synchronous copies, and copies of pageable memory, per step
    double pageable;
    const OperationRow *slack; // the operation whose time exceeds its limit most
    double slack_ns, slack_share;
    const char *limits; // the source of the limits, "measured"; NULL: unknown
    bool cpu, graphs;   // graphs: steps are launched as graphs
} Evidence;

/* Whether a primitive is bound by arithmetic. On a GPU a GELU or a softmax is computed while memory is read.
 * On the CPU their exponentials take longer than moving their bytes, even if the contract is bound by
 * bytes. */
static bool computes(const InsideRow *inside, bool cpu) {
    return inside->category == CATEGORY_MATRIX || (cpu && inside->arithmetic != ARITHMETIC_PLAIN);
}

/* A fused operation is bound by the larger of its contract's limits, except for primitives that a CPU
 * computes longer than it moves their bytes. The primitives of a naive one exchange data through memory: only
 * those that compute are bound by arithmetic. */
static void weigh_row(const OperationRow *r, bool arithmetic, Evidence *e) {
    double computing = 0;
    for (int64_t i = 0; i < r->inside_count; i++)
        if (computes(&r->inside[i], e->cpu) && (arithmetic || r->inside[i].category != CATEGORY_MATRIX))
            computing += r->inside[i].ns;
    if (r->form == FORM_FUSED && arithmetic) computing = r->ns;
    e->matrix += computing;
    e->memory += r->ns - computing;
}

static void weigh_work(const ProfilePath *path, Evidence *e) {
    const Figures *f = &path->figures;
    const TraceRun *run = &path->trace->run;
    const Peaks *peaks = trace_limits(run);
    if (!peaks_known(peaks)) return;
    e->limits = peaks == &run->measured ? "measured" : "data sheet's";
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        double reached = r->share_of_limit;
        if (r->category == CATEGORY_COMMUNICATION) continue; // communication is the seventh question
        weigh_row(r, limit_is_arithmetic(peaks, r->work, r->calls), e);
        e->least += reached * r->ns;
        if ((1 - reached) * r->ns <= e->slack_ns) continue;
        e->slack = r;
        e->slack_ns = (1 - reached) * r->ns;
        e->slack_share = reached;
    }
}

static void weigh_events(const ProfilePath *path, Evidence *e) {
    const Trace *t = path->trace;
    double steps = (double)path->figures.steps;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *event = &t->events[i];
        double ns = (double)trace_length(event);
        if (event->step < 0) continue;
        if (event->kind == TRACE_KERNEL) {
            e->kernels += 1 / steps;
            e->tiny += (ns < TINY_NS) / steps;
        } else if (event->kind == TRACE_COPY) {
            e->pageable += (event->copy.host == HOST_MEMORY_PAGEABLE) / steps;
            e->copied += (double)event->copy.bytes / steps;
        } else if (event->kind == TRACE_RUNTIME && strstr(event->name, "Synchronize")) {
            e->waits += 1 / steps;
            e->wait_ns += ns / steps;
        } else if (event->kind == TRACE_RUNTIME && strstr(event->name, "Memcpy") &&
                   !strstr(event->name, "Async")) {
            e->copies += 1 / steps;
        }
    }
}

/* The share of the recorded steps in which nothing runs on the device and the step does not wait for the
 * reader. All times are with tracing on: relating them to a step without tracing would mix two kinds of
 * steps. */
static double idle_share(const Figures *f) {
    const PhaseRow *reader = &f->phases[PHASE_READER];
    double waited = reader->ns; // minus the time in which the device worked meanwhile
    for (int c = 0; c < CATEGORY_COUNT; c++) waited -= reader->categories[c];
    return fmax(0, 1 - ratio(f->device_ns + fmax(0, waited), f->step_ns));
}

static Evidence weigh(const ProfilePath *path) {
    const Figures *f = &path->figures;
    const TraceRun *run = &path->trace->run;
    Evidence e = {.cpu = run->source == SOURCE_CLOCK, .graphs = run->graphs};
    e.reader = ratio(f->reader_ms, f->step_ms);
    e.idle = idle_share(f);
    weigh_work(path, &e);
    weigh_events(path, &e);
    return e;
}

/* Remedies for a device that is busy, bound by memory or arithmetic; only those that can help on this
 * machine. */
static const char *remedy(const ProfilePath *path, const Evidence *e) {
    const TraceRun *run = &path->trace->run;
    bool memory = e->memory > e->matrix, fp32 = strcmp(run->dtype, "fp32") == 0;
    if (strcmp(path->label, "naive") == 0)
        return memory ? "--fused=1, whose operations read and write what the naive ones pass through memory"
                      : "--fused=1";
    if (fp32 && !e->cpu) return "--dtype=bf16 or tf32, which use the tensor cores";
    if (fp32 && run->bf16_fast) return "--dtype=bf16, whose products are faster on this processor";
    return "improving the operations whose share of the limit is lowest";
}

/* With two paths, the suggested remedy has been measured: it is the other path. */
static void tried(const Profile *profile, const ProfilePath *path, Answer *a) {
    if (profile->count < 2 || path != &profile->paths[0]) return;
    const double before = path->figures.step_ms, after = profile->paths[1].figures.step_ms;
    answer_line(a, "%s: --fused=1 was tried here: a median step of %s instead of %s, %.2f times as fast",
                path->label, in_words(CELL_TIME, 1e6 * after).text, in_words(CELL_TIME, 1e6 * before).text,
                ratio(before, after));
}

static void verdict(const ProfilePath *path, const Evidence *e, Answer *a) {
    if (e->reader > STARVED)
        answer_line(
            a, "%s: the reader. Try more --workers, a larger batch, or tokens in .bin shards instead of text",
            path->label);
    else if (e->idle > IDLE)
        answer_line(a, "%s: %s. Try %sa larger batch", path->label,
                    e->cpu ? "the program between the operations" : "the host's launches",
                    strcmp(path->label, "naive") == 0 ? "--fused=1, "
                    : e->cpu || e->graphs             ? ""
                                                      : "--graphs=1 (tracing turns it off), ");
    else if (!e->limits)
        answer_line(a,
                    "%s: memory or arithmetic; which of them is not known without this machine's limits. Try "
                    "--peaks=1, which measures them",
                    path->label);
    else
        answer_line(a, "%s: %s. Try %s", path->label, e->memory > e->matrix ? "memory" : "arithmetic",
                    remedy(path, e));
}

void question_bound(const Profile *profile, const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    Evidence e = weigh(path);
    double ns = e.matrix + e.memory;
    if (path->trace->run.host_only) {
        answer_line(a, "%s: not known, because nothing of the GPU was recorded", path->label);
        return;
    }
    verdict(path, &e, a);
    tried(profile, path, a);
    answer_line(a, "%s: of a median step's %.3f ms %.2f (%.1f%%) are spent waiting for the reader",
                path->label, f->step_ms, f->reader_ms, 100 * e.reader);
    answer_line(a, "%s: %s %.1f%% of a recorded step; %.0f %s a step, %.0f of them under %d us", path->label,
                e.cpu ? "no operation runs in" : "the device idles", 100 * e.idle, e.kernels,
                e.cpu ? "primitives and products" : "kernels", e.tiny, TINY_NS / 1000);
    if (ns > 0)
        answer_line(a,
                    "%s: of the operations' time %.1f%% is limited by arithmetic, %.1f%% by memory; at the "
                    "%s limits they would take %s, %s %s%s",
                    path->label, 100 * e.matrix / ns, 100 * e.memory / ns, e.limits,
                    in_words(CELL_TIME, e.least).text, e.least > ns ? "but took" : "instead of",
                    in_words(CELL_TIME, ns).text,
                    e.least > ns ? ": those are too low, and --peaks measures them anew" : "");
    if (e.slack)
        answer_line(a, "%s: the most to gain is in %s %s: %s at %.1f%% of its limit", path->label,
                    e.slack->call, pass_name(e.slack->pass), in_words(CELL_TIME, e.slack->ns).text,
                    100 * e.slack_share);
    if (path->trace->run.source == SOURCE_CUPTI) // otherwise the number of calls is unknown
        answer_line(a,
                    "%s: the host waits for the device %.1f times a step (%s); %.1f synchronous copies, %.1f "
                    "of pageable memory, %s copied",
                    path->label, e.waits, in_words(CELL_TIME, e.wait_ns).text, e.copies, e.pageable,
                    in_words(CELL_BYTES, e.copied).text);
}
