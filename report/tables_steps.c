/* Tables of where a step's time goes: devices, kinds of events, phases, and validation. */
#include "report/spans.h"
#include "report/tables.h"
#include "report/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- device ---- */

static void add_utilization(Table *table, const char *what, double share, const char *of) {
    table_add_row(table);
    table_set_text(table, 0, what);
    table_set(table, 1, share >= 0 ? share : NAN);
    table_set_text(table, 2, of);
}

/* The processor's counters, as far as known, and why the others are unknown. */
static void note_counters(const TraceRun *r, Table *table) {
    enum { CYCLES, INSTRUCTIONS, MISSES, BRANCHES, COUNTS }; // same order as CounterKind
    static const char *const names[COUNTS] = {"cycles", "instructions", "cache misses", "branch misses"};
    char text[256] = "";
    for (int i = 0; i < COUNTS; i++) {
        size_t used = strlen(text);
        if (r->counters[i] < 0) continue;
        snprintf(text + used, sizeof text - used, "%s%.4g %s", used ? ", " : "", r->counters[i], names[i]);
        used = strlen(text);
        if (i == INSTRUCTIONS && r->counters[CYCLES] > 0)
            snprintf(text + used, sizeof text - used, " (%.2f in a cycle)",
                     r->counters[i] / r->counters[CYCLES]);
    }
    if (*text) table_note(table, "CPU counters of the recorded steps: %s", text);
    if (*r->counters_note)
        table_note(table, "%s CPU counters: %s", *text ? "no other" : "no", r->counters_note);
}

Table table_device(const Trace *t) {
    static const TableColumn columns[] = {{"device", "Device", CELL_TEXT},
                                          {"utilization", "Utilization", CELL_SHARE},
                                          {"of", "Share of", CELL_TEXT}};
    const TraceRun *r = &t->run;
    Table table = TABLE("device", "Device", columns);
    add_utilization(&table, "CPU, this process", r->process_cpu, "one processor: at most 100% of each");
    add_utilization(&table, "CPU, the system", r->system_cpu, "all processors");
    if (r->source != SOURCE_CLOCK)
        add_utilization(&table, "GPU", r->gpu_busy, "a step: something runs on it");
    table_note(&table,
               "%s; where steps are too short for its clock, the system's share is of the time since "
               "profiling began",
               r->step_count ? "of the steps with tracing off"
                             : "since profiling began: no step was left to be measured with tracing off");
    note_counters(r, &table);
    return table;
}

/* ---- overview ---- */

/* The rows: kinds of events; phases and the program's own ranges are separate. */
enum {
    DATALOADER,
    FORWARD,
    BACKWARD,
    OPTIMIZATION,
    OTHERS,
    PROFILE_STEP,
    USER_DEFINED,
    COMMUNICATION,
    EVENT_KINDS
};

static const char *const row_names[] = {"Dataloader", "Forward",   "Backward",    "Optimization",
                                        "Others",     MODEL_STEPS, "UserDefined", "Communication"};

static int overview_row(const TraceEvent *e) {
    if (e->kind == TRACE_STEP) return PROFILE_STEP;
    if (e->kind == TRACE_PHASE) return (int)e->phase;
    if (e->kind == TRACE_OPERATION && e->category == CATEGORY_COMMUNICATION) return COMMUNICATION;
    return e->own ? USER_DEFINED : EVENT_KINDS + (int)e->kind;
}

static void add_overview(const Trace *t, int row, Interval *intervals, double wall, Table *table) {
    int64_t count = 0;
    double sum = 0;
    TraceKind kind = row < EVENT_KINDS ? TRACE_SCOPE : (TraceKind)(row - EVENT_KINDS);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!trace_in_step(e) || overview_row(e) != row) continue;
        intervals[count++] = (Interval){e->begin, e->end};
        sum += (double)trace_length(e);
    }
    if (!count) return;
    double together = (double)intervals_union(intervals, count);
    table_add_row(table);
    table_set_text(table, 0, row < EVENT_KINDS ? row_names[row] : trace_kind_name(kind));
    table_set_text(table, 1, kind >= TRACE_KERNEL ? "device" : "host");
    TABLE_SET(table, 2, (double)count, sum, together, share_of(together, wall));
}

Table table_overview(const Trace *t) {
    static const TableColumn columns[] = {
        {"kind", "Event type", CELL_TEXT}, {"side", "Where", CELL_TEXT},
        {"events", "Calls", CELL_COUNT},   {"sum_ns", "Sum", CELL_TIME},
        {"union_ns", "Union", CELL_TIME},  {"share", "of the steps", CELL_SHARE}};
    OWNED Interval *intervals = memory_array((size_t)t->count + 1, sizeof *intervals);
    Table table = TABLE("overview", "Overview", columns);
    add_overview(t, PROFILE_STEP, intervals, trace_steps_ns(t), &table);
    for (int row = 0; row < EVENT_KINDS + TRACE_KIND_COUNT; row++)
        if (row != PROFILE_STEP) add_overview(t, row, intervals, trace_steps_ns(t), &table);
    table_note(&table, "Union: what overlaps counts once. Source: %s%s%s", source_name(t->run.source),
               *t->run.source_note ? "; " : "", t->run.source_note);
    return table;
}

/* ---- model ---- */

/* Times of each phase, on the host and on the device; `others` is time outside phases. (PHASE_COUNT,
 * steps) */
typedef struct {
    double *host, *device;
    int64_t steps;
} PhaseTimes;

static PhaseTimes phase_times(const Trace *t) {
    PhaseTimes p = {0};
    int64_t step = -1;
    for (int64_t i = 0; i < t->count; i++) p.steps += t->events[i].kind == TRACE_STEP;
    p.host = memory_array(PHASE_COUNT * (size_t)p.steps + 1, sizeof *p.host);
    p.device = memory_array(PHASE_COUNT * (size_t)p.steps + 1, sizeof *p.device);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind == TRACE_STEP) step++;
        bool phase = e->kind == TRACE_PHASE && step >= 0;
        if (e->kind != TRACE_STEP && !phase) continue;
        int64_t others = PHASE_OTHER * p.steps + step, own = e->phase * p.steps + step;
        p.host[others] += (phase ? -1 : 1) * (double)trace_length(e);
        p.device[others] += (phase ? -1 : 1) * (double)e->device_total;
        if (phase) p.host[own] += (double)trace_length(e);
        if (phase) p.device[own] += (double)e->device_total;
    }
    return p;
}

static void set_times(Table *table, int column, double *times, int64_t steps, double whole) {
    Stats s = stats_make(times, steps);
    TABLE_SET(table, column, s.total, s.mean, s.most, s.least, share_of(s.total, whole));
}

/* Adds rows for the whole steps, whose parts are the phases. */
static void add_steps(const Trace *t, double *times, Table *table) {
    int64_t count = 0;
    table_add_row(table);
    table_set_text(table, 0, row_names[PROFILE_STEP]);
    for (int device = 0; device < 2; device++, count = 0) {
        for (int64_t i = 0; i < t->count; i++)
            if (t->events[i].kind == TRACE_STEP)
                times[count++] = (double)(device ? t->events[i].device_total : trace_length(&t->events[i]));
        set_times(table, device ? 7 : 2, times, count, device ? trace_device_ns(t) : trace_steps_ns(t));
    }
    table_set(table, 1, (double)t->run.steps);
}

static int64_t calls_of(const Trace *t, Phase phase) {
    int64_t calls = 0;
    for (int64_t i = 0; i < t->count; i++)
        calls += t->events[i].kind == TRACE_PHASE && t->events[i].phase == phase;
    return calls;
}

Table table_model(const Trace *t) {
    static const TableColumn columns[] = {{"phase", "Phase", CELL_TEXT}, TIMED};
    PhaseTimes p = phase_times(t);
    double wall = trace_steps_ns(t), device = trace_device_ns(t);
    OWNED double *room = memory_array((size_t)p.steps + 1, sizeof *room);
    Table table = TABLE("model", "Model", columns);
    add_steps(t, room, &table);
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        table_add_row(&table);
        table_set_text(&table, 0, row_names[phase]);
        if (phase != PHASE_OTHER) table_set(&table, 1, (double)calls_of(t, (Phase)phase));
        set_times(&table, 2, p.host + phase * p.steps, p.steps, wall);
        set_times(&table, 7, p.device + phase * p.steps, p.steps, device);
    }
    memory_free(p.host);
    memory_free(p.device);
    table_note(&table,
               "CPU: time between a phase's start and end on the host, which on a GPU launches it. Of %lld "
               "recorded steps",
               (long long)t->run.steps);
    return table;
}

/* ---- perf ---- */

/* Adds a row with the statistics of `count` steps; returns the median. `sorted` (count) is scratch. */
static double add_perf(Table *table, const char *name, const double *values, int64_t count, double *sorted) {
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    Stats s = stats_make(sorted, count);
    table_add_row(table);
    table_set_text(table, 0, name);
    TABLE_SET(table, 1, s.mean, s.most, s.least);
    return s.median;
}

static double sum_of(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i];
    return sum;
}

/* Sequences per second of each step, or with `tokens` tokens per second. `rates` (2, count) is scratch. */
static void add_rates(const TraceRun *r, bool tokens, const double *ms, int64_t count, double *rates,
                      Table *table) {
    bool own = ms == r->step_ms;
    double all = 0;
    for (int64_t i = 0; i < count; i++) {
        double items = (double)r->batch * (double)(r->accum > 0 ? r->accum : 1);
        if (tokens) items = own ? trace_step_tokens(r, i) : trace_traced_tokens(r, i);
        rates[i] = ratio(1e3 * items, ms[i]);
        all += items;
    }
    char name[40];
    snprintf(name, sizeof name, "%s per second", tokens ? trace_unit(r) : "sequences");
    (void)add_perf(table, name, rates, count, rates + count);
    table_set(table, 1, ratio(1e3 * all, sum_of(ms, count))); // rate of all items over the total time
}

/* Adds a note on the cost of tracing, unless the cost is within noise. `room` holds the steps of both
 * passes. */
static void note_overhead(const TraceRun *r, double *room, Table *table) {
    double *traced = room + r->step_count;
    memcpy(room, r->step_ms, (size_t)r->step_count * sizeof *room);
    memcpy(traced, r->traced_ms, (size_t)r->traced_count * sizeof *room);
    const Stats without = stats_make(room, r->step_count), with = stats_make(traced, r->traced_count);
    const bool known = without.count > 1 && with.count > 1 &&
                       medians_differ((Sampled){without.median, without.spread, without.count},
                                      (Sampled){with.median, with.spread, with.count});
    char overhead[32] = ": not known, within noise";
    if (known && without.median > 0)
        snprintf(overhead, sizeof overhead, " %+.2f%%", 100 * (with.median / without.median - 1));
    table_note(
        table,
        "tracing overhead%s (median step %.4g ms with it, %.4g ms without, which reports call the step)",
        overhead, with.median, without.median);
}

Table table_perf(const Trace *t) {
    static const TableColumn columns[] = {{"what", "Perf summary", CELL_TEXT},
                                          {"mean", "Average", CELL_NUMBER},
                                          {"most", "Maximum", CELL_NUMBER},
                                          {"least", "Minimum", CELL_NUMBER}};
    const TraceRun *r = &t->run;
    bool own = r->step_count > 0; // steps with tracing off; if there are none, the recorded ones
    const double *ms = own ? r->step_ms : r->traced_ms;
    int64_t count = own ? r->step_count : r->traced_count;
    Table table = TABLE("perf", "Perf summary", columns);
    if (!count) return table;
    OWNED double *room = memory_array(2 * (size_t)(count + r->traced_count), sizeof *room);
    if (own) {
        double *shares = room + count;
        for (int64_t i = 0; i < count; i++) shares[i] = 100 * ratio(r->reader_ms[i], ms[i]);
        (void)add_perf(&table, "reader ratio, %", shares, count, room);
        (void)add_perf(&table, "reader cost, ms", r->reader_ms, count, room);
    }
    double middle = add_perf(&table, PERF_STEP, ms, count, room);
    if (r->seq > 1) add_rates(r, false, ms, count, room, &table); // a single token is not a sequence
    add_rates(r, true, ms, count, room, &table);
    if (own) {
        table_note(
            &table,
            "reader ratio %.2f%%; median step %.4g ms; %lld steps with tracing off, in a pass of their own",
            100 * ratio(sum_of(r->reader_ms, count), sum_of(ms, count)), middle, (long long)count);
        table_note(&table,
                   "reader: the wait for a batch; the phase of that name also copies it to the device");
    } else {
        table_note(
            &table,
            "median step %.4g ms; %lld steps with tracing on: no steps were left to time with tracing off",
            middle, (long long)count);
    }
    if (r->source != SOURCE_CLOCK)
        table_note(&table, "launched kernel by kernel; --timer-only times CUDA graphs, where a run has them");
    if (own && r->traced_count) {
        note_overhead(r, room, &table);
    }
    return table;
}

/* ---- validation ---- */

Table table_validation(const Trace *t) {
    static const TableColumn columns[] = {{"step", "Step", CELL_COUNT},
                                          {"loss", "Loss", CELL_NUMBER},
                                          {"top1", "Top 1", CELL_SHARE},
                                          {"top5", "Top 5", CELL_SHARE}};
    Table table = TABLE("validation", "Validation", columns);
    for (int64_t i = 0; i < t->run.validation_count; i++) {
        const TraceValidation *v = &t->run.validations[i];
        table_add_row(&table);
        TABLE_SET(&table, 0, (double)v->step, v->loss, v->top1, v->top5);
    }
    return table;
}
