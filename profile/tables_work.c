/* Work against what the machine can do, and memory. */
#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- work ---- */

/* One call of the model in one pass, all layers and steps. */
typedef struct {
    const char *call;
    Operation operation;
    Pass pass;
    Form form;
    double ns, calls;
    Work work;
} WorkSum;

typedef struct {
    WorkSum *rows;
    int64_t count, room;
} WorkSums;

static Status work_row(WorkSums *sums, const TraceEvent *e, WorkSum **row) {
    for (int64_t i = 0; i < sums->count; i++) {
        WorkSum *r = &sums->rows[i];
        if (r->call == e->call && r->operation == e->operation && r->pass == e->pass) {
            *row = r;
            return OK;
        }
    }
    if (sums->count == sums->room) {
        int64_t room = 2 * sums->room + 32;
        WorkSum *moved = memory_resize(sums->rows, (size_t)room * sizeof *moved);
        if (!moved) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
        sums->rows = moved;
        sums->room = room;
    }
    *row = &sums->rows[sums->count++];
    **row = (WorkSum){.call = e->call, .operation = e->operation, .pass = e->pass, .form = e->form};
    return OK;
}

/* Time goes where the work is counted: a gradient that a forward pass computes early is backward. */
static Status sum_work(const Trace *t, WorkSums *sums) {
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        WorkSum *row;
        bool operation = e->kind == TRACE_OPERATION;
        if (!in_step(e) || !e->in_operation || (!operation && !trace_on_device(e))) continue;
        TRY(work_row(sums, e, &row));
        if (!operation) {
            row->ns += (double)trace_length(e);
            continue;
        }
        row->calls++;
        row->work.flops += e->work.flops;
        row->work.bytes += e->work.bytes;
    }
    return OK;
}

/* What binds work of so many FLOP a byte. */
static const char *binding(double intensity, const Peaks *peaks) {
    if (!peaks_known(peaks)) return "";
    return intensity > peaks->flops / peaks->bandwidth ? "arithmetic" : "memory";
}

/* The least time that the work takes within limits, over the time taken. */
static double share_of_limits(Work work, double seconds, const Peaks *peaks) {
    if (!peaks_known(peaks)) return NAN;
    return share_of(fmax(work.flops / peaks->flops, work.bytes / peaks->bandwidth), seconds);
}

static Status add_work(const Trace *t, const char *place, const char *operation, const char *form,
                       const WorkSum *r, Table *table, bool *above) {
    double seconds = 1e-9 * r->ns, measured = share_of_limits(r->work, seconds, &t->run.measured);
    double intensity = share_of(r->work.flops, r->work.bytes);
    TRY(table_add_row(table));
    TRY(table_set_text(table, 0, place));
    TRY(table_set_text(table, 1, operation));
    TRY(table_set_text(table, 2, form));
    table_set(table, 3, r->work.flops);
    table_set(table, 4, r->work.bytes);
    table_set(table, 5, r->ns);
    table_set(table, 6, share_of(r->work.flops, seconds));
    table_set(table, 7, share_of(r->work.bytes, seconds));
    table_set(table, 8, intensity);
    TRY(table_set_text(table, 9, binding(intensity, trace_limits(&t->run))));
    table_set(table, 10, measured);
    table_set(table, 11, share_of_limits(r->work, seconds, &t->run.sheet));
    bool wrong = share_of_limits(r->work, seconds, trace_utmost(&t->run)) > 1;
    *above |= wrong;
    return table_set_text(table, 12,
                          wrong          ? "ERROR: above 100%"
                          : measured > 1 ? "above what was measured"
                                         : "");
}

static Status add_pass(const Trace *t, const WorkSums *sums, int pass, Table *table, bool *above) {
    WorkSum all = {0};
    for (int64_t i = 0; i < sums->count; i++) {
        const WorkSum *r = &sums->rows[i];
        if (pass < PASS_COUNT && r->pass != (Pass)pass) continue;
        all.ns += r->ns;
        all.work.flops += r->work.flops;
        all.work.bytes += r->work.bytes;
    }
    if (!(all.work.bytes > 0)) return OK;
    return add_work(t, "(sum)", pass < PASS_COUNT ? pass_name((Pass)pass) : "all", "", &all, table, above);
}

static void say_limits(const Peaks *peaks, const char *unknown, char *text, size_t size) {
    if (peaks_known(peaks))
        snprintf(text, size, "%.4g TFLOP/s, %.4g TB/s", 1e-12 * peaks->flops, 1e-12 * peaks->bandwidth);
    else
        snprintf(text, size, "%s", unknown);
}

static Status fill_work(const Trace *t, WorkSums *sums, Table *table) {
    bool above = false;
    TRY(sum_work(t, sums));
    for (int64_t i = 0; i < sums->count; i++) {
        const WorkSum *r = &sums->rows[i];
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "%s %s", operation_name(r->operation), pass_name(r->pass));
        TRY(add_work(t, r->call, label, form_name(r->form), r, table, &above));
    }
    for (int pass = 0; pass <= PASS_COUNT; pass++) TRY(add_pass(t, sums, pass, table, &above));
    char measured[128], sheet[128];
    say_limits(&t->run.measured, "not measured", measured, sizeof measured);
    say_limits(&t->run.sheet, "not known", sheet, sizeof sheet);
    TRY(table_note(table, "limits of products and copies here: %s; by the data sheet: %s", measured, sheet));
    return above
               ? table_note(table, "ERROR: a row is above 100%%: its work or its time is counted wrongly, or "
                                   "the limits were measured while the machine was busy")
               : OK;
}

Status table_work(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"place", "Place", CELL_TEXT},
                                          {"operation", "Operation", CELL_TEXT},
                                          {"form", "Form", CELL_TEXT},
                                          {"flops", "Work", CELL_FLOPS},
                                          {"bytes", "Least bytes", CELL_BYTES},
                                          {"device_ns", "Time", CELL_TIME},
                                          {"flop_rate", "FLOP/s", CELL_FLOP_RATE},
                                          {"byte_rate", "Bytes/s", CELL_BYTE_RATE},
                                          {"intensity", "FLOP/byte", CELL_NUMBER},
                                          {"limit", "Limit", CELL_TEXT},
                                          {"of_measured", "of measured", CELL_SHARE},
                                          {"of_sheet", "of data sheet", CELL_SHARE},
                                          {"flag", "", CELL_TEXT}};
    WorkSums sums = {0};
    *table = table_make("work", "Work", COLUMNS(columns));
    Status status = fill_work(t, &sums, table);
    memory_free(sums.rows);
    return status;
}

/* ---- memory ---- */

/* Walks the samples; `held` are the classes after sample i. */
static int64_t apply(const Trace *t, int64_t i, int64_t held[MEMORY_CLASS_COUNT]) {
    int64_t sum = 0;
    held[t->memory[i].class_] = t->memory[i].bytes;
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) sum += held[k];
    return sum;
}

Status table_memory(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"class", "Memory", CELL_TEXT},
                                          {"at_peak_bytes", "At the peak", CELL_BYTES},
                                          {"share", "Share", CELL_SHARE},
                                          {"own_peak_bytes", "Its own peak", CELL_BYTES}};
    int64_t held[MEMORY_CLASS_COUNT] = {0}, own[MEMORY_CLASS_COUNT] = {0}, at_peak[MEMORY_CLASS_COUNT] = {0};
    int64_t peak = 0, when = 0;
    for (int64_t i = 0; i < t->memory_count; i++) {
        int64_t sum = apply(t, i, held), bytes = t->memory[i].bytes;
        MemoryClass class_ = t->memory[i].class_;
        own[class_] = bytes > own[class_] ? bytes : own[class_];
        if (sum <= peak) continue;
        peak = sum;
        when = t->memory[i].at;
        memcpy(at_peak, held, sizeof at_peak);
    }
    *table = table_make("memory", "Memory", COLUMNS(columns));
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) {
        if (!own[k]) continue;
        TRY(table_add_row(table));
        TRY(table_set_text(table, 0, memory_class_name((MemoryClass)k)));
        table_set(table, 1, (double)at_peak[k]);
        table_set(table, 2, share_of((double)at_peak[k], (double)peak));
        table_set(table, 3, (double)own[k]);
    }
    return table_note(table, "peak %.2f MiB, %.3f ms after the first recorded step began",
                      (double)peak / 1048576, 1e-6 * (double)when);
}

/* The fullest moment of each part of the first step. */
Status table_timeline(const Trace *t, Table *table) {
    static const TableColumn columns[] = {
        {"until_ns", "Until", CELL_TIME},       {"parameters", "Parameters", CELL_BYTES},
        {"gradients", "Gradients", CELL_BYTES}, {"optimizer", "Optimizer", CELL_BYTES},
        {"saved", "Saved", CELL_BYTES},         {"scratch", "Scratch", CELL_BYTES},
        {"cache", "Cache", CELL_BYTES},         {"workspace", "Workspace", CELL_BYTES},
        {"all_bytes", "All", CELL_BYTES}};
    enum { PARTS = 16 };
    int64_t held[MEMORY_CLASS_COUNT] = {0}, sum = 0, next = 0, first = -1;
    *table = table_make("memory_timeline", "Memory in the first recorded step", COLUMNS(columns));
    for (int64_t i = 0; i < t->count && first < 0; i++)
        if (t->events[i].kind == TRACE_STEP) first = i;
    if (first < 0) return OK;
    const TraceEvent *step = &t->events[first];
    for (int part = 1; part <= PARTS; part++) {
        int64_t until = step->begin + trace_length(step) * part / PARTS, most = sum,
                fullest[MEMORY_CLASS_COUNT];
        memcpy(fullest, held, sizeof fullest);
        for (; next < t->memory_count && t->memory[next].at <= until; next++) {
            sum = apply(t, next, held);
            if (sum <= most) continue;
            most = sum;
            memcpy(fullest, held, sizeof fullest);
        }
        TRY(table_add_row(table));
        table_set(table, 0, (double)(until - step->begin));
        for (int k = 0; k < MEMORY_CLASS_COUNT; k++) table_set(table, 1 + k, (double)fullest[k]);
        table_set(table, 1 + MEMORY_CLASS_COUNT, (double)most);
    }
    return table_note(table,
                      "Each row is the fullest moment of a sixteenth of the step, as the host sees it.");
}

Status table_tensors(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"name", "Tensor", CELL_TEXT},
                                          {"class", "Memory", CELL_TEXT},
                                          {"bytes", "Size", CELL_BYTES},
                                          {"share", "of all", CELL_SHARE}};
    enum { TENSORS_MOST = 100 };
    double all = 0;
    for (int64_t i = 0; i < t->tensor_count; i++) all += (double)t->tensors[i].bytes;
    *table = table_make("tensors", "Largest tensors at the peak of their class", COLUMNS(columns));
    for (int64_t i = 0; i < t->tensor_count && i < TENSORS_MOST; i++) {
        const TraceTensor *tensor = &t->tensors[i];
        TRY(table_add_row(table));
        TRY(table_set_text(table, 0, tensor->name));
        TRY(table_set_text(table, 1, memory_class_name(tensor->class_)));
        table_set(table, 2, (double)tensor->bytes);
        table_set(table, 3, share_of((double)tensor->bytes, all));
    }
    return table_note(table, "Each class has memory of its own, as much as it needs at its own peak.");
}
