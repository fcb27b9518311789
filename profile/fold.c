#include "profile/fold.h"

#include "base/memory.h"
#include "report/kernel_name.h"
#include "report/spans.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DISPATCH_NS = 10000 };

static bool in_window(const Figures *f, const TraceEvent *e) {
    return e->step >= f->first_step && e->step < f->first_step + f->steps;
}

/* Equal names within a trace are the same pointer. */
static OperationRow *row_of(Figures *f, const TraceEvent *e) {
    for (int64_t i = 0; i < f->row_count; i++) {
        OperationRow *r = &f->rows[i];
        if (r->call == e->call && r->pass == e->pass && strcmp(r->operation, e->operation) == 0) return r;
    }
    f->rows = memory_grow(f->rows, &f->row_room, f->row_count + 1, sizeof *f->rows);
    f->rows[f->row_count] = (OperationRow){.call = e->call,
                                           .source = e->source,
                                           .operation = e->operation,
                                           .pass = e->pass,
                                           .form = e->form,
                                           .category = e->category,
                                           .step_ns = memory_array((size_t)f->steps, sizeof(double))};
    return &f->rows[f->row_count++];
}

static InsideRow *inside_of(const Figures *f, OperationRow *row, const char *name, const TraceEvent *e) {
    for (int64_t i = 0; i < row->inside_count; i++)
        if (row->inside[i].name == name) return &row->inside[i];
    row->inside = memory_grow(row->inside, &row->inside_room, row->inside_count + 1, sizeof *row->inside);
    row->inside[row->inside_count] = (InsideRow){.name = name,
                                                 .category = e->category,
                                                 .arithmetic = e->arithmetic,
                                                 .step_ns = memory_array((size_t)f->steps, sizeof(double))};
    return &row->inside[row->inside_count++];
}

static Pass pass_of(const TraceEvent *e) {
    if (e->operation) return e->pass;
    return e->phase == PHASE_BACKWARD    ? PASS_BACKWARD
           : e->phase == PHASE_OPTIMIZER ? PASS_UPDATE
                                         : PASS_FORWARD;
}

/* The total time of each kernel's events, and their time in the queue. */
typedef struct {
    RowValues times, queued;
} KernelTimes;

/* The shapes of the primitive or operation that a device event belongs to. */
static const char *shapes_of(const Trace *t, const TraceEvent *e) {
    for (int64_t i = e->parent; i >= 0; i = t->events[i].parent)
        if (t->events[i].shapes) return t->events[i].shapes;
    return NULL;
}

/* The line that implements the operation of a device event. */
static const char *source_of(const Trace *t, const TraceEvent *e) {
    const char *source = e->source;
    for (int64_t i = e->parent; i >= 0 && !source; i = t->events[i].parent) source = t->events[i].source;
    return source;
}

static KernelRow *kernel_of(Figures *f, const TraceEvent *e, int64_t *index) {
    char label[KERNEL_NAME_BYTES], decoded[KERNEL_NAME_BYTES];
    *index = figures_kernel(f, e);
    if (*index >= 0) return &f->kernels[*index];
    f->kernels = memory_grow(f->kernels, &f->kernel_room, f->kernel_count + 1, sizeof *f->kernels);
    *index = f->kernel_count++;
    kernel_label(e->name, label);
    kernel_decode(e->name, decoded);
    f->kernels[*index] = (KernelRow){.name = e->name,
                                     .label = memory_text(label),
                                     .decoded = memory_text(decoded),
                                     .kind = e->kind,
                                     .call = e->operation ? e->call : NULL,
                                     .longest = e,
                                     .shapes = shapes_of(f->trace, e),
                                     .source = source_of(f->trace, e)};
    return &f->kernels[*index];
}

static void add_served(KernelRow *row, const TraceEvent *e) {
    int64_t i = 0;
    while (i < row->served_count &&
           (row->served[i].pass != e->pass || strcmp(row->served[i].operation, e->operation) != 0))
        i++;
    if (i == row->served_count) {
        row->served = memory_grow(row->served, &row->served_room, ++row->served_count, sizeof *row->served);
        row->served[i] = (KernelServed){e->operation, e->pass, 0};
    }
    row->served[i].ns += (double)trace_length(e);
}

static void add_kernel(Figures *f, const TraceEvent *e, KernelTimes *all) {
    int64_t index;
    KernelRow *row = kernel_of(f, e, &index);
    KernelUse *use = &row->in[pass_of(e)];
    row->category = e->category;
    if (row->call != (e->operation ? e->call : NULL)) row->call = "several";
    if (trace_length(e) > trace_length(row->longest)) {
        row->longest = e;
        row->shapes = shapes_of(f->trace, e);
        row->source = source_of(f->trace, e);
    }
    if (e->operation) add_served(row, e);
    use->ns += (double)trace_length(e);
    use->calls += 1;
    row_values_add(&all->times, index, (double)trace_length(e));
    if (e->launch >= 0)
        row_values_add(&all->queued, index, fmax(0, (double)(e->begin - f->trace->events[e->launch].begin)));
}

static void add_device(Figures *f, const TraceEvent *e, KernelTimes *all) {
    double ns = (double)trace_length(e), launches = e->kind == TRACE_KERNEL ? (double)e->launches : 0;
    f->device_ns += ns;
    f->launches += launches;
    f->phases[figures_phase(e)].categories[e->category] += ns;
    f->events[e->category] += 1;
    add_kernel(f, e, all);
    if (!e->operation) return;
    OperationRow *row = row_of(f, e);
    row->step_ns[e->step - f->first_step] += ns;
    row->launches += launches;
    const TraceEvent *parent = e->parent >= 0 ? &f->trace->events[e->parent] : NULL;
    bool marked = parent && parent->kind == TRACE_PRIMITIVE;
    InsideRow *inside = inside_of(f, row, marked ? parent->name : e->name, e);
    inside->step_ns[e->step - f->first_step] += ns;
    inside->launches += launches;
    inside->primitive = marked;
    if (!marked) inside->calls += 1;
}

static void add_host(Figures *f, const TraceEvent *e) {
    if (e->kind != TRACE_OPERATION && e->kind != TRACE_PRIMITIVE) return;
    OperationRow *row = row_of(f, e);
    if (e->kind == TRACE_PRIMITIVE) {
        InsideRow *inside = inside_of(f, row, e->name, e);
        inside->primitive = true;
        inside->calls += 1;
        return;
    }
    row->category = e->category;
    if (e->source) row->source = e->source;
    row->form = e->form;
    row->host_ns += (double)trace_length(e);
    row->calls += 1;
    work_add(&row->work, e->work);
}

/* Turns sums over the recorded steps into means. */
static void finish(Figures *f) {
    const Peaks *limits = trace_limits(&f->trace->run);
    double steps = (double)f->steps;
    for (int64_t i = 0; i < f->row_count; i++) {
        OperationRow *r = &f->rows[i];
        Stats s = stats_make(r->step_ns, f->steps);
        r->ns = s.mean, r->median = s.median, r->low = s.least, r->high = s.most;
        r->spread = s.spread;
        r->host_ns /= steps;
        r->calls /= steps;
        r->launches /= steps;
        r->work = work_times(r->work, 1 / steps);
        r->share_of_limit = limit_share(limits, r->work, r->calls, r->ns);
        r->limit = limit_name(limits, r->work, r->calls);
        for (int64_t k = 0; k < r->inside_count; k++) {
            InsideRow *inside = &r->inside[k];
            s = stats_make(inside->step_ns, f->steps);
            inside->ns = s.mean, inside->median = s.median, inside->low = s.least, inside->high = s.most;
            inside->calls /= steps;
            inside->launches /= steps;
        }
    }
    for (int64_t i = 0; i < f->kernel_count; i++) {
        KernelRow *k = &f->kernels[i];
        for (int pass = 0; pass < PASS_COUNT; pass++)
            k->in[pass] = (KernelUse){k->in[pass].ns / steps, k->in[pass].calls / steps};
    }
    for (int p = 0; p < PHASE_COUNT; p++)
        for (int c = 0; c < CATEGORY_COUNT; c++) f->phases[p].categories[c] /= steps;
    f->device_ns /= steps;
    f->launches /= steps;
}

/* ---- the step and its phases ---- */

static Status count_steps(Figures *f) {
    const Trace *t = f->trace;
    int64_t last = -1;
    f->first_step = -1;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_STEP) continue;
        if (f->first_step < 0 || e->step < f->first_step) f->first_step = e->step;
        if (e->step > last) last = e->step;
        f->step_ns += (double)trace_length(e);
        f->steps++;
    }
    if (f->steps == 0 || f->first_step < 0)
        return fail(ERROR_FORMAT, "the profile has no recorded step; its window may lie after the run's end");
    if (last - f->first_step + 1 != f->steps)
        return fail(ERROR_INTERNAL, "the profile's steps %lld to %lld are %lld events",
                    (long long)f->first_step, (long long)last, (long long)f->steps);
    f->step_ns /= (double)f->steps;
    return OK;
}

typedef struct {
    Interval when;
    int64_t step;
    Phase phase;
} Stretch;

static int earlier(const void *a, const void *b) {
    const Stretch *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->when.begin != y->when.begin) return x->when.begin < y->when.begin ? -1 : 1;
    return (x->when.end > y->when.end) - (x->when.end < y->when.end);
}

/* A gap between two stretches of a step counts to the later one's phase, and an overlap to the earlier one's;
 * time before the first and after the last counts to "others". `steps` are the intervals of the recorded
 * steps. */
static void add_phases(Figures *f, Stretch *stretches, int64_t count, const Interval *steps) {
    int64_t reached = 0;
    double ns[PHASE_COUNT] = {0};
    if (count) qsort(stretches, (size_t)count, sizeof *stretches, earlier);
    for (int64_t i = 0; i < count; i++) {
        Interval when = stretches[i].when, step = steps[stretches[i].step - f->first_step];
        if (i == 0 || stretches[i].step != stretches[i - 1].step) {
            reached = when.begin;
            ns[PHASE_OTHER] += (double)(when.begin - step.begin);
        }
        if (when.end > reached) {
            ns[stretches[i].phase] += (double)(when.end - reached);
            reached = when.end;
        }
        bool last = i + 1 == count || stretches[i + 1].step != stretches[i].step;
        if (last && step.end > reached) ns[PHASE_OTHER] += (double)(step.end - reached);
    }
    for (int p = 0; p < PHASE_COUNT; p++) f->phases[p].ns = ns[p] / (double)f->steps;
}

/* The part of an interval within its step. */
static Interval clipped(Interval i, Interval step) {
    if (i.begin < step.begin) i.begin = step.begin;
    if (i.end > step.end) i.end = step.end;
    return i;
}

/* The time that an event attributes. For an operation: from its first to its last kernel, and the time in
 * which the host launches it, for which the device waits if launches are the bottleneck, as for a graph. For
 * a copy: from the call on, because the host waits for its end. Returns up to two intervals. */
static int attributed(const Trace *t, int64_t index, Span span, Interval intervals[2]) {
    const TraceEvent *e = &t->events[index];
    int count = 0;
    bool copy = trace_on_device(e) && !e->operation;
    if (copy) intervals[count++] = (Interval){e->launch >= 0 ? t->events[e->launch].begin : e->begin, e->end};
    if (e->kind == TRACE_OPERATION || (e->kind == TRACE_PHASE && e->phase == PHASE_READER) || e->host)
        intervals[count++] = (Interval){e->begin, e->end};
    if (span.stream >= 0) intervals[count++] = (Interval){span.begin, span.end};
    return count;
}

/* The attributed share of each step: all but the gaps of more than DISPATCH_NS between attributed intervals,
 * `sorted` by beginning. In a shorter gap the host goes on to the next operation: it checks a contract, takes
 * memory and writes records. */
static void attributed_shares(const Interval *sorted, int64_t count, const Interval *steps,
                              int64_t step_count, double *shares) {
    int64_t i = 0;
    for (int64_t s = 0; s < step_count; s++) {
        const int64_t length = steps[s].end - steps[s].begin;
        int64_t reached = steps[s].begin, lost = 0;
        for (; i < count && sorted[i].begin < steps[s].end; i++) {
            if (sorted[i].end <= sorted[i].begin) continue; // of another step
            if (sorted[i].begin - reached > DISPATCH_NS) lost += sorted[i].begin - reached;
            if (sorted[i].end > reached) reached = sorted[i].end;
        }
        if (steps[s].end - reached > DISPATCH_NS) lost += steps[s].end - reached;
        shares[s] = 1 - ratio((double)lost, (double)length);
    }
}

static void gather(Figures *f, const Span *spans, const Interval *steps, Stretch *stretches,
                   Interval *covered) {
    const Trace *t = f->trace;
    int64_t count = 0, covering = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!in_window(f, e)) continue;
        bool reader = e->kind == TRACE_PHASE && e->phase == PHASE_READER;
        const Interval step = steps[e->step - f->first_step],
                       when = clipped((Interval){e->begin, e->end}, step);
        if ((trace_on_device(e) || reader) && when.end > when.begin)
            stretches[count++] = (Stretch){when, e->step, reader ? PHASE_READER : figures_phase(e)};
        Interval own[2];
        int intervals = attributed(t, i, spans[i], own);
        for (int k = 0; k < intervals; k++) covered[covering++] = clipped(own[k], step);
    }
    add_phases(f, stretches, count, steps);
    OWNED double *shares = memory_array((size_t)f->steps, sizeof *shares);
    intervals_sort(covered, covering);
    attributed_shares(covered, covering, steps, f->steps, shares);
    f->covered = stats_make(shares, f->steps).median;
}

static void fold_phases(Figures *f) {
    const Trace *t = f->trace;
    size_t room = (size_t)t->count + 1;
    OWNED Span *spans = spans_make(t);
    OWNED Stretch *stretches = memory_array(room, sizeof *stretches);
    OWNED Interval *covered = memory_array(2 * room, sizeof *covered);
    OWNED Interval *steps = memory_array((size_t)f->steps, sizeof *steps);
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP)
            steps[t->events[i].step - f->first_step] = (Interval){t->events[i].begin, t->events[i].end};
    gather(f, spans, steps, stretches, covered);
}

/* Lengths of the recorded steps in `ms` (steps), by their timer if known; and the mean time of their
 * readers. */
static void traced_times(const Figures *f, double *ms, double *reader_ms) {
    const Trace *t = f->trace;
    int64_t taken = 0;
    *reader_ms = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind == TRACE_STEP) ms[taken++] = 1e-6 * (double)trace_length(e);
        if (e->kind == TRACE_PHASE && e->phase == PHASE_READER)
            *reader_ms += 1e-6 * (double)trace_length(e) / (double)f->steps;
    }
    if (t->run.traced_count == f->steps) memcpy(ms, t->run.traced_ms, (size_t)f->steps * sizeof *ms);
}

/* Step times with tracing off, if there are any, else those of the recorded steps. */
static void fold_times(Figures *f) {
    const TraceRun *run = &f->trace->run;
    int64_t taken = f->steps;
    f->timed = run->step_count;
    OWNED double *ms = memory_array((size_t)(f->timed > taken ? f->timed : taken), sizeof *ms);
    traced_times(f, ms, &f->reader_ms);
    Stats traced = stats_make(ms, taken), all;
    if (f->timed) {
        taken = f->timed;
        memcpy(ms, run->step_ms, (size_t)taken * sizeof *ms);
        f->reader_ms = 0;
        for (int64_t i = 0; i < taken; i++) f->reader_ms += run->reader_ms[i] / (double)taken;
    }
    all = stats_make(ms, taken);
    f->step_ms = all.median, f->low = all.least, f->high = all.most, f->spread = all.spread;
    for (int64_t i = 0; i < taken; i++)
        f->tokens += (f->timed ? trace_step_tokens(run, i) : trace_traced_tokens(run, i)) / (double)taken;
    f->overhead = f->timed && f->step_ms > 0 ? traced.median / f->step_ms - 1 : 0;
    f->overhead_noise = f->timed > 1 && traced.count > 1 &&
                        !medians_differ((Sampled){all.median, all.spread, all.count},
                                        (Sampled){traced.median, traced.spread, traced.count});
}

static void fold_memory(Figures *f) {
    const Trace *t = f->trace;
    int64_t now[MEMORY_CLASS_COUNT] = {0}, sum = 0, call = -1, before = 0, first = 0;
    while (t->events[first].kind != TRACE_STEP) first++;
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        int64_t *own = &f->own_peaks[m->class_];
        int64_t inside = trace_above(t, m->event, TRACE_OPERATION);
        if (inside != call) before = sum;
        call = inside;
        sum += m->bytes - now[m->class_];
        now[m->class_] = m->bytes;
        *own = m->bytes > *own ? m->bytes : *own;
        if (call >= 0 && in_window(f, &t->events[call])) {
            OperationRow *row = row_of(f, &t->events[call]);
            if (sum - before > row->memory) row->memory = sum - before;
        }
        if (sum <= f->peak_bytes) continue;
        f->peak_bytes = sum;
        f->peak_at = m->at - t->events[first].begin;
        memcpy(f->peak_classes, now, sizeof now);
    }
}

static void finish_kernels(Figures *f, KernelTimes *all) {
    OWNED Stats *times = row_values_stats(&all->times, f->kernel_count),
                *queued = row_values_stats(&all->queued, f->kernel_count);
    for (int64_t i = 0; i < f->kernel_count; i++) {
        f->kernels[i].times = times[i];
        f->kernels[i].queued = queued[i];
    }
}

Status figures_make(const Trace *t, Figures *figures) {
    KernelTimes all = {0};
    *figures = (Figures){.trace = t};
    TRY(count_steps(figures));
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!in_window(figures, e)) continue;
        if (trace_on_device(e))
            add_device(figures, e, &all);
        else
            add_host(figures, e);
    }
    finish(figures);
    finish_kernels(figures, &all);
    fold_memory(figures);
    fold_times(figures);
    fold_phases(figures);
    return OK;
}

void figures_free(Figures *f) {
    for (int64_t i = 0; i < f->row_count; i++) {
        for (int64_t k = 0; k < f->rows[i].inside_count; k++) memory_free(f->rows[i].inside[k].step_ns);
        memory_free(f->rows[i].inside);
        memory_free(f->rows[i].step_ns);
    }
    for (int64_t i = 0; i < f->kernel_count; i++) {
        memory_free(f->kernels[i].label);
        memory_free(f->kernels[i].decoded);
        memory_free(f->kernels[i].served);
    }
    memory_free(f->rows);
    memory_free(f->kernels);
    *f = (Figures){0};
}
