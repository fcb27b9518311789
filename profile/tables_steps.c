/* Where the steps' time goes: devices, kinds of events, phases, communication, and what came of it. */
#include "profile/spans.h"
#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- device ---- */

static Status add_utilization(Table *table, const char *what, double share, const char *of) {
    TRY(table_add_row(table));
    TRY(table_set_text(table, 0, what));
    table_set(table, 1, share >= 0 ? share : NAN);
    return table_set_text(table, 2, of);
}

/* What the processor counted, as far as it is known, and why not the rest. */
static Status note_counters(const TraceRun *r, Table *table) {
    enum { CYCLES, INSTRUCTIONS, MISSES, BRANCHES, COUNTS }; // as CounterKind
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
    if (*text) TRY(table_note(table, "CPU counters of the recorded steps: %s", text));
    if (!*r->counters_note) return OK;
    return table_note(table, "%s CPU counters: %s", *text ? "no other" : "no", r->counters_note);
}

Status table_device(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"device", "Device", CELL_TEXT},
                                          {"utilization", "Utilization", CELL_SHARE},
                                          {"of", "Share of", CELL_TEXT}};
    const TraceRun *r = &t->run;
    *table = table_make("device", "Device", COLUMNS(columns));
    TRY(add_utilization(table, "CPU, this process", r->process_cpu, "all processors, untraced steps"));
    TRY(add_utilization(table, "CPU, the system", r->system_cpu, "all processors, untraced steps"));
    if (r->source != SOURCE_CLOCK)
        TRY(add_utilization(table, "GPU", r->gpu_busy, "an untraced step: something runs on it"));
    if (r->process_cpu >= 0 && r->system_cpu < 0)
        TRY(table_note(table, "the system counts its processors' time in hundredths of a second: these steps "
                              "were too short to tell its share"));
    if (r->process_cpu < 0) TRY(table_note(table, "no step was left to be measured with tracing off"));
    return note_counters(r, table);
}

/* ---- overview ---- */

static Status add_overview(const Trace *t, TraceKind kind, Interval *intervals, double wall, Table *table) {
    int64_t count = 0;
    double sum = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != kind || !in_step(e)) continue;
        intervals[count++] = (Interval){e->begin, e->end};
        sum += (double)trace_length(e);
    }
    if (!count) return OK;
    double together = (double)intervals_union(intervals, count);
    TRY(table_add_row(table));
    TRY(table_set_text(table, 0, trace_kind_name(kind)));
    TRY(table_set_text(table, 1, kind >= TRACE_KERNEL ? "device" : "host"));
    table_set(table, 2, (double)count);
    table_set(table, 3, sum);
    table_set(table, 4, together);
    table_set(table, 5, share_of(together, wall));
    return OK;
}

Status table_overview(const Trace *t, Table *table) {
    static const TableColumn columns[] = {
        {"kind", "Event type", CELL_TEXT}, {"side", "Where", CELL_TEXT},
        {"events", "Events", CELL_COUNT},  {"sum_ns", "Sum", CELL_TIME},
        {"union_ns", "Union", CELL_TIME},  {"share", "of the steps", CELL_SHARE}};
    Interval *intervals = memory_array((size_t)(t->count ? t->count : 1), sizeof *intervals);
    if (!intervals) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    *table = table_make("overview", "Overview", COLUMNS(columns));
    Status status = OK;
    for (int kind = 0; kind < TRACE_KIND_COUNT && !status; kind++)
        status = add_overview(t, (TraceKind)kind, intervals, steps_length(t), table);
    memory_free(intervals);
    if (status) return status;
    return table_note(table, "Union: what overlaps counts once. Source: %s%s%s", source_name(t->run.source),
                      *t->run.source_note ? "; " : "", t->run.source_note);
}

/* ---- model ---- */

/* Times of one phase in each step, on the host and on the device; `others` is what no phase has. */
typedef struct {
    double *host[PHASE_COUNT], *device[PHASE_COUNT]; // (steps)
    double *all;
    int64_t steps;
} PhaseTimes;

static Status phase_times(const Trace *t, PhaseTimes *p) {
    int64_t step = -1;
    for (int64_t i = 0; i < t->count; i++) p->steps += t->events[i].kind == TRACE_STEP;
    size_t count = (size_t)(p->steps ? p->steps : 1);
    p->all = memory_array(2 * PHASE_COUNT * count, sizeof *p->all);
    if (!p->all) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        p->host[phase] = p->all + (size_t)phase * count;
        p->device[phase] = p->all + (size_t)(PHASE_COUNT + phase) * count;
    }
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind == TRACE_STEP) {
            step++;
            p->host[PHASE_OTHER][step] += (double)trace_length(e);
            p->device[PHASE_OTHER][step] += (double)e->device_total;
        } else if (e->kind == TRACE_PHASE && step >= 0) {
            p->host[e->phase][step] += (double)trace_length(e);
            p->device[e->phase][step] += (double)e->device_total;
            p->host[PHASE_OTHER][step] -= (double)trace_length(e);
            p->device[PHASE_OTHER][step] -= (double)e->device_total;
        }
    }
    return OK;
}

static void set_times(Table *table, int column, double *times, int64_t steps, double whole) {
    Stats s = stats_make(times, steps);
    const double cells[] = {s.total, s.mean, s.most, s.least, share_of(s.total, whole)};
    for (int i = 0; i < 5; i++) table_set(table, column + i, cells[i]);
}

Status table_model(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"phase", "Phase", CELL_TEXT},
                                          {"cpu_ns", "CPU total", CELL_TIME},
                                          {"cpu_mean_ns", "Average", CELL_TIME},
                                          {"cpu_most_ns", "Maximum", CELL_TIME},
                                          {"cpu_least_ns", "Minimum", CELL_TIME},
                                          {"cpu_share", "Ratio", CELL_SHARE},
                                          {"device_ns", "Device total", CELL_TIME},
                                          {"device_mean_ns", "Average", CELL_TIME},
                                          {"device_most_ns", "Maximum", CELL_TIME},
                                          {"device_least_ns", "Minimum", CELL_TIME},
                                          {"device_share", "Ratio", CELL_SHARE}};
    PhaseTimes p = {0};
    *table = table_make("model", "Model", COLUMNS(columns));
    TRY(phase_times(t, &p));
    double wall = steps_length(t), device = device_length(t);
    Status status = OK;
    for (int phase = 0; phase < PHASE_COUNT && !status; phase++) {
        status = table_add_row(table);
        if (!status) status = table_set_text(table, 0, phase_name((Phase)phase));
        if (status) break;
        set_times(table, 1, p.host[phase], p.steps, wall);
        set_times(table, 6, p.device[phase], p.steps, device);
    }
    memory_free(p.all);
    if (status) return status;
    return table_note(table,
                      "CPU: time between a phase's begin and end on the host, which on a GPU launches it. "
                      "Of %lld recorded steps",
                      (long long)t->run.steps);
}

/* ---- distribution ---- */

Status table_distribution(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"what", "Device time", CELL_TEXT},
                                          {"union_ns", "Time", CELL_TIME},
                                          {"share", "of the steps", CELL_SHARE}};
    enum { COMMUNICATION, COMPUTATION, BOTH, PARTS };
    static const char *const names[PARTS + 1] = {"communication", "computation", "either", "overlap"};
    size_t room = (size_t)(t->count ? t->count : 1);
    Interval *intervals = memory_array(room, sizeof *intervals);
    if (!intervals) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    double ns[PARTS + 1];
    for (int part = 0; part < PARTS; part++) {
        int64_t count = 0;
        for (int64_t i = 0; i < t->count; i++) {
            const TraceEvent *e = &t->events[i];
            if (!trace_on_device(e) || !in_step(e)) continue;
            bool communicates = e->category == CATEGORY_COMMUNICATION || e->copy.direction == COPY_PEER;
            if (part == BOTH || communicates == (part == COMMUNICATION))
                intervals[count++] = (Interval){e->begin, e->end};
        }
        ns[part] = (double)intervals_union(intervals, count);
    }
    memory_free(intervals);
    ns[PARTS] = ns[COMMUNICATION] + ns[COMPUTATION] - ns[BOTH];
    *table = table_make("distribution", "Distribution", COLUMNS(columns));
    for (int i = 0; i <= PARTS; i++) {
        if (i == BOTH) continue;
        TRY(table_add_row(table));
        TRY(table_set_text(table, 0, names[i]));
        table_set(table, 1, ns[i]);
        table_set(table, 2, share_of(ns[i], steps_length(t)));
    }
    return t->run.device_count > 1 ? OK : table_note(table, "One device: nothing to communicate with.");
}

/* ---- perf ---- */

static Status add_perf(Table *table, const char *name, const double *values, int64_t count) {
    double least = INFINITY, most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
        sum += values[i];
    }
    TRY(table_add_row(table));
    TRY(table_set_text(table, 0, name));
    table_set(table, 1, fmin(fmax(sum / (double)count, least), most)); // rounding must not push it out
    table_set(table, 2, most);
    table_set(table, 3, least);
    return OK;
}

/* What each step did in a second; its sequences, or with `tokens` its tokens. `rates` is room. */
static Status add_rates(const TraceRun *r, bool tokens, const double *ms, int64_t count, double *rates,
                        Table *table) {
    bool own = ms == r->step_ms;
    for (int64_t i = 0; i < count; i++) {
        double items = (double)r->batch * (double)(r->accum > 0 ? r->accum : 1);
        if (tokens) items = own ? trace_step_tokens(r, i) : trace_traced_tokens(r, i);
        rates[i] = ms[i] > 0 ? 1e3 * items / ms[i] : 0;
    }
    return add_perf(table, tokens ? "tokens per second" : "sequences per second", rates, count);
}

static double median_of(const double *values, int64_t count) {
    double *copy = memory_array((size_t)(count ? count : 1), sizeof *copy);
    if (!copy) return NAN;
    if (count) memcpy(copy, values, (size_t)count * sizeof *copy);
    double middle = stats_make(copy, count).median;
    memory_free(copy);
    return middle;
}

Status table_perf(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"what", "Perf summary", CELL_TEXT},
                                          {"mean", "Average", CELL_NUMBER},
                                          {"most", "Maximum", CELL_NUMBER},
                                          {"least", "Minimum", CELL_NUMBER}};
    const TraceRun *r = &t->run;
    bool own = r->step_count > 0; // steps with tracing off; else the recorded ones
    const double *ms = own ? r->step_ms : r->traced_ms;
    int64_t count = own ? r->step_count : r->traced_count;
    double reader = 0, all = 0, *rates;
    *table = table_make("perf", "Perf summary", COLUMNS(columns));
    if (!count) return OK;
    if (own) TRY(add_perf(table, "reader cost, ms", r->reader_ms, count));
    TRY(add_perf(table, "batch cost, ms", ms, count));
    rates = memory_array((size_t)count, sizeof *rates);
    if (!rates) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    Status status = OK;
    if (r->seq > 1) status = add_rates(r, false, ms, count, rates, table); // one token is no sequence yet
    if (!status) status = add_rates(r, true, ms, count, rates, table);
    memory_free(rates);
    TRY(status);
    for (int64_t i = 0; i < count; i++) {
        reader += own ? r->reader_ms[i] : 0;
        all += ms[i];
    }
    if (own)
        TRY(table_note(
            table,
            "reader ratio %.2f%%; median step %.4g ms; %lld steps with tracing off, in a pass of their own",
            all > 0 ? 100 * reader / all : 0, median_of(ms, count), (long long)count));
    else
        TRY(table_note(
            table,
            "median step %.4g ms; %lld steps with tracing on: the run or the next window left none "
            "to time with it off",
            median_of(ms, count), (long long)count));
    if (own)
        TRY(table_note(table,
                       "reader: the wait for a batch; the phase of that name copies it to the device, too"));
    if (r->source != SOURCE_CLOCK)
        TRY(table_note(table,
                       "launched kernel by kernel; --timer-only times CUDA graphs, where a run has them"));
    if (!own || !r->traced_count) return OK;
    double off = median_of(r->step_ms, r->step_count), on = median_of(r->traced_ms, r->traced_count);
    return table_note(table, "tracing overhead %+.2f%% (median step %.4g ms with it, %.4g ms without)",
                      off > 0 ? 100 * (on / off - 1) : 0, on, off);
}
