#include "profile/figures.h"

#include "base/memory.h"
#include "profile/spans.h"
#include "profile/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* While folding: the time of each row in each step. */
typedef struct {
    Figures *figures;
    int64_t first; // number of the first recorded step
    double *ns;    // (row_room, steps)
} Fold;

static Status no_memory(void) {
    return fail(ERROR_MEMORY, "out of host memory for the profile");
}

/* Room for one more element of `size` bytes; what is new is zero. */
static Status grow(void *array, int count, int *room, size_t size) {
    void **at = array;
    if (count < *room) return OK;
    int larger = 2 * *room + 16;
    void *moved = memory_resize(*at, (size_t)larger * size);
    if (!moved) return no_memory();
    memset((char *)moved + (size_t)*room * size, 0, (size_t)(larger - *room) * size);
    *at = moved;
    *room = larger;
    return OK;
}

static bool in_window(const Fold *fold, const TraceEvent *e) {
    return e->step >= fold->first && e->step < fold->first + fold->figures->steps;
}

/* Names of one trace are the same pointer where they are the same text. */
static Status row_of(Fold *fold, const TraceEvent *e, int *index) {
    Figures *f = fold->figures;
    for (int i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->call == e->call && r->operation == e->operation && r->pass == e->pass) {
            *index = i;
            return OK;
        }
    }
    if (f->row_count == f->row_room) {
        TRY(grow(&f->rows, f->row_count, &f->row_room, sizeof *f->rows));
        size_t bytes = (size_t)f->row_room * (size_t)f->steps * sizeof *fold->ns;
        double *ns = memory_resize(fold->ns, bytes);
        if (!ns) return no_memory();
        fold->ns = ns;
    }
    *index = f->row_count++;
    f->rows[*index] = (OperationRow){.call = e->call,
                                     .source = e->source,
                                     .operation = e->operation,
                                     .pass = e->pass,
                                     .form = e->form,
                                     .category = e->category};
    memset(fold->ns + *index * f->steps, 0, (size_t)f->steps * sizeof *fold->ns);
    return OK;
}

static Status inside_of(OperationRow *row, const char *name, Category category, InsideRow **inside) {
    for (int i = 0; i < row->inside_count; i++)
        if (row->inside[i].name == name) {
            *inside = &row->inside[i];
            return OK;
        }
    TRY(grow(&row->inside, row->inside_count, &row->inside_room, sizeof *row->inside));
    *inside = &row->inside[row->inside_count++];
    (*inside)->name = name;
    (*inside)->category = category;
    return OK;
}

static Pass pass_of(const TraceEvent *e) {
    if (e->in_operation) return e->pass;
    return e->phase == PHASE_BACKWARD    ? PASS_BACKWARD
           : e->phase == PHASE_OPTIMIZER ? PASS_UPDATE
                                         : PASS_FORWARD;
}

Phase figures_phase(const TraceEvent *e) {
    static const Phase phases[PASS_COUNT] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER};
    return e->in_operation ? phases[e->pass] : e->phase;
}

static Status add_kernel(Figures *f, const TraceEvent *e) {
    KernelRow *row = NULL;
    for (int i = 0; i < f->kernel_count && !row; i++)
        if (f->kernels[i].name == e->name && f->kernels[i].kind == e->kind) row = &f->kernels[i];
    if (!row) {
        TRY(grow(&f->kernels, f->kernel_count, &f->kernel_room, sizeof *f->kernels));
        row = &f->kernels[f->kernel_count++];
        *row = (KernelRow){.name = e->name, .kind = e->kind};
    }
    const char *place = e->in_operation ? e->call : NULL;
    bool first = row->calls[PASS_FORWARD] + row->calls[PASS_BACKWARD] + row->calls[PASS_UPDATE] == 0;
    row->category = e->in_operation ? e->category : CATEGORY_MEMORY;
    if (first)
        row->call = place;
    else if (row->call != place)
        row->call = "several";
    row->ns[pass_of(e)] += (double)trace_length(e);
    row->calls[pass_of(e)] += 1;
    return OK;
}

static Status add_device(Fold *fold, const TraceEvent *e) {
    Figures *f = fold->figures;
    double ns = (double)trace_length(e);
    f->device_ns += ns;
    f->launches += e->kind == TRACE_KERNEL;
    f->phases[figures_phase(e)].categories[e->in_operation ? e->category : CATEGORY_MEMORY] += ns;
    TRY(add_kernel(f, e));
    if (!e->in_operation) return OK;
    int index;
    TRY(row_of(fold, e, &index));
    OperationRow *row = &f->rows[index];
    fold->ns[index * f->steps + e->step - fold->first] += ns;
    row->launches += e->kind == TRACE_KERNEL;
    const TraceEvent *parent = e->parent >= 0 ? &f->trace->events[e->parent] : NULL;
    InsideRow *inside;
    bool marked = parent && parent->kind == TRACE_PRIMITIVE;
    TRY(inside_of(row, marked ? parent->name : e->name, e->category, &inside));
    inside->ns += ns;
    inside->launches += e->kind == TRACE_KERNEL;
    if (!marked) inside->calls += 1;
    return OK;
}

static Status add_host(Fold *fold, const TraceEvent *e) {
    if (e->kind != TRACE_OPERATION && e->kind != TRACE_PRIMITIVE) return OK;
    int index;
    TRY(row_of(fold, e, &index));
    OperationRow *row = &fold->figures->rows[index];
    if (e->kind == TRACE_PRIMITIVE) {
        InsideRow *inside;
        TRY(inside_of(row, e->name, e->category, &inside));
        inside->calls += 1;
        return OK;
    }
    row->category = e->category;
    if (e->source) row->source = e->source;
    row->form = e->form;
    row->host_ns += (double)trace_length(e);
    row->calls += 1;
    row->work.flops += e->work.flops;
    row->work.bytes += e->work.bytes;
    return OK;
}

static void finish_rows(Fold *fold) {
    Figures *f = fold->figures;
    double steps = (double)f->steps;
    for (int i = 0; i < f->row_count; i++) {
        OperationRow *r = &f->rows[i];
        r->low = INFINITY;
        for (int64_t s = 0; s < f->steps; s++) {
            double ns = fold->ns[i * f->steps + s];
            r->ns += ns / steps;
            r->low = fmin(r->low, ns);
            r->high = fmax(r->high, ns);
        }
        r->host_ns /= steps;
        r->calls /= steps;
        r->launches /= steps;
        r->work.flops /= steps;
        r->work.bytes /= steps;
        for (int k = 0; k < r->inside_count; k++) {
            r->inside[k].ns /= steps;
            r->inside[k].calls /= steps;
            r->inside[k].launches /= steps;
        }
    }
    for (int i = 0; i < f->kernel_count; i++)
        for (int pass = 0; pass < PASS_COUNT; pass++) {
            f->kernels[i].ns[pass] /= steps;
            f->kernels[i].calls[pass] /= steps;
        }
    for (int p = 0; p < PHASE_COUNT; p++)
        for (int c = 0; c < CATEGORY_COUNT; c++) f->phases[p].categories[c] /= steps;
    f->device_ns /= steps;
    f->launches /= steps;
}

/* ---- the step and its phases ---- */

static Status count_steps(Fold *fold) {
    const Trace *t = fold->figures->trace;
    int64_t last = -1;
    fold->first = -1;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_STEP) continue;
        if (fold->first < 0 || e->step < fold->first) fold->first = e->step;
        if (e->step > last) last = e->step;
        fold->figures->step_ns += (double)trace_length(e);
        fold->figures->steps++;
    }
    if (fold->figures->steps == 0 || fold->first < 0)
        return fail(ERROR_FORMAT, "the profile has no recorded step; its window may lie after the run's end");
    if (last - fold->first + 1 != fold->figures->steps)
        return fail(ERROR_INTERNAL, "the profile's steps %lld to %lld are %lld events",
                    (long long)fold->first, (long long)last, (long long)fold->figures->steps);
    fold->figures->step_ns /= (double)fold->figures->steps;
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

/* What lies between two stretches of a step goes to the later one's phase, and what overlaps to the
 * earlier; what comes before the first and after the last is of no phase, so of the others. `steps` are
 * those of the step numbers from `first` on. */
static void add_phases(Figures *f, Stretch *stretches, int64_t count, const Interval *steps, int64_t first) {
    int64_t reached = 0;
    double ns[PHASE_COUNT] = {0};
    if (count) qsort(stretches, (size_t)count, sizeof *stretches, earlier);
    for (int64_t i = 0; i < count; i++) {
        Interval when = stretches[i].when, step = steps[stretches[i].step - first];
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

/* The part of an interval that lies in its step. */
static Interval clipped(Interval i, Interval step) {
    if (i.begin < step.begin) i.begin = step.begin;
    if (i.end > step.end) i.end = step.end;
    return i;
}

/* A token that the host draws, or its search among the beams (run/generate.c, run/translate.c). */
static bool is_sampling(const TraceEvent *e) {
    return e->kind == TRACE_SCOPE && (strcmp(e->name, "sample") == 0 || strcmp(e->name, "search") == 0);
}

/* What an event attributes: of an operation the time from its first to its last kernel, and that in which
 * the host launches it, for which the device waits where the launches bind; of a copy the time from the
 * call that asks for it, since the host waits for its end. Gives up to two intervals. */
static int attributed(const Trace *t, int64_t index, Span span, Interval intervals[2]) {
    const TraceEvent *e = &t->events[index];
    int count = 0;
    bool copy = trace_on_device(e) && !e->in_operation;
    if (copy) intervals[count++] = (Interval){e->launch >= 0 ? t->events[e->launch].begin : e->begin, e->end};
    if (e->kind == TRACE_OPERATION || (e->kind == TRACE_PHASE && e->phase == PHASE_READER) || is_sampling(e))
        intervals[count++] = (Interval){e->begin, e->end};
    if (span.stream >= 0) intervals[count++] = (Interval){span.begin, span.end};
    return count;
}

static void gather(Figures *f, int64_t first, const Span *spans, const Interval *steps, Stretch *stretches,
                   Interval *covered) {
    const Trace *t = f->trace;
    int64_t count = 0, covering = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->step < first || e->step >= first + f->steps) continue;
        bool reader = e->kind == TRACE_PHASE && e->phase == PHASE_READER;
        if (trace_on_device(e) || reader)
            stretches[count++] =
                (Stretch){{e->begin, e->end}, e->step, reader ? PHASE_READER : figures_phase(e)};
        Interval own[2];
        int intervals = attributed(t, i, spans[i], own);
        for (int k = 0; k < intervals; k++) covered[covering++] = clipped(own[k], steps[e->step - first]);
    }
    add_phases(f, stretches, count, steps, first);
    f->covered_ns = (double)intervals_union(covered, covering) / (double)f->steps;
}

static Status fold_phases(Fold *fold) {
    Figures *f = fold->figures;
    const Trace *t = f->trace;
    Span *spans = NULL;
    size_t room = (size_t)t->count + 1;
    Stretch *stretches = memory_array(room, sizeof *stretches);
    Interval *covered = memory_array(2 * room, sizeof *covered);
    Interval *steps = memory_array((size_t)f->steps, sizeof *steps);
    Status status = stretches && covered && steps ? spans_make(t, &spans) : no_memory();
    for (int64_t i = 0; i < t->count && !status; i++)
        if (t->events[i].kind == TRACE_STEP)
            steps[t->events[i].step - fold->first] = (Interval){t->events[i].begin, t->events[i].end};
    if (!status) gather(f, fold->first, spans, steps, stretches, covered);
    memory_free(spans);
    memory_free(stretches);
    memory_free(covered);
    memory_free(steps);
    return status;
}

/* Lengths of the recorded steps, as their timer saw them where it is known, in `ms` (steps); and what of them
 * their readers took, in the mean. */
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

/* Step times with tracing off, where there are any, else those of the recorded steps. */
static Status fold_times(Figures *f) {
    const TraceRun *run = &f->trace->run;
    int64_t taken = f->steps;
    f->timed = run->step_count;
    double *ms = memory_array((size_t)(f->timed > taken ? f->timed : taken), sizeof *ms);
    if (!ms) return no_memory();
    traced_times(f, ms, &f->reader_ms);
    double traced = median(ms, taken);
    if (f->timed) {
        taken = f->timed;
        memcpy(ms, run->step_ms, (size_t)taken * sizeof *ms);
        f->reader_ms = 0;
        for (int64_t i = 0; i < taken; i++) f->reader_ms += run->reader_ms[i] / (double)taken;
    }
    f->step_ms = median(ms, taken); // sorts
    f->low = ms[0];
    f->high = ms[taken - 1];
    for (int64_t i = 0; i < taken; i++)
        f->tokens += (f->timed ? trace_step_tokens(run, i) : trace_traced_tokens(run, i)) / (double)taken;
    f->overhead = f->timed && f->step_ms > 0 ? traced / f->step_ms - 1 : 0;
    memory_free(ms);
    return OK;
}

/* `taken` bytes more than before it are in use inside the call of an operation. */
static Status fold_taken(Fold *fold, int64_t call, int64_t taken) {
    int index;
    TRY(row_of(fold, &fold->figures->trace->events[call], &index));
    OperationRow *row = &fold->figures->rows[index];
    if (taken > row->memory) row->memory = taken;
    return OK;
}

static Status fold_memory(Fold *fold) {
    Figures *f = fold->figures;
    const Trace *t = f->trace;
    int64_t now[MEMORY_CLASS_COUNT] = {0}, sum = 0, call = -1, before = 0;
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        int64_t inside = trace_above(t, m->event, TRACE_OPERATION);
        if (inside != call) before = sum;
        call = inside;
        sum += m->bytes - now[m->class_];
        now[m->class_] = m->bytes;
        if (call >= 0 && in_window(fold, &t->events[call])) TRY(fold_taken(fold, call, sum - before));
        if (sum <= f->peak_bytes) continue;
        f->peak_bytes = sum;
        memcpy(f->peak_classes, now, sizeof now);
    }
    return OK;
}

static Status fold_all(Fold *fold) {
    Figures *f = fold->figures;
    const Trace *t = f->trace;
    TRY(count_steps(fold));
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!in_window(fold, e)) continue;
        TRY(trace_on_device(e) ? add_device(fold, e) : add_host(fold, e));
    }
    finish_rows(fold);
    TRY(fold_memory(fold));
    TRY(fold_times(f));
    return fold_phases(fold);
}

Status figures_make(const Trace *trace, Figures *figures) {
    *figures = (Figures){.trace = trace};
    Fold fold = {.figures = figures};
    Status status = fold_all(&fold);
    memory_free(fold.ns);
    if (status) figures_free(figures);
    return status;
}

void figures_free(Figures *figures) {
    for (int i = 0; i < figures->row_count; i++) memory_free(figures->rows[i].inside);
    memory_free(figures->rows);
    memory_free(figures->kernels);
    *figures = (Figures){0};
}

const OperationRow *figures_find(const Figures *f, const char *place, Operation operation, Pass pass) {
    for (int i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->operation == operation && r->pass == pass && strcmp(r->call, place) == 0) return r;
    }
    return NULL;
}

double figures_pass_ns(const Figures *f, Pass pass) {
    double ns = 0;
    for (int i = 0; i < f->row_count; i++)
        if (pass == PASS_COUNT || f->rows[i].pass == pass) ns += f->rows[i].ns;
    return ns;
}
