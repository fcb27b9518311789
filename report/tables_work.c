/* Tables of work against the machine's limits, and of memory. */
#include "report/figures.h"
#include "report/tables_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- work ---- */

static const char ABOVE[] = "ERROR: above 100%";

enum { LIMIT = 11, FLAG = 14 }; // indices of columns

/* Minimum ns of a row. */
typedef struct {
    double measured, sheet;
} Least;

static Least least_of(const TraceRun *run, const OperationRow *r) {
    return (Least){limit_ns(&run->measured, r->work, r->calls), limit_ns(&run->sheet, r->work, r->calls)};
}

/* A row over all recorded steps; `r` is per step. */
static void add_work(const Figures *f, const char *call, const char *operation, const char *form,
                     const OperationRow *r, Least least, Table *table) {
    const TraceRun *run = &f->trace->run;
    double steps = (double)f->steps, seconds = 1e-9 * r->ns;
    double measured = ratio(least.measured, r->ns), sheet = ratio(least.sheet, r->ns),
           utmost = peaks_known(&run->sheet) ? sheet : measured;
    table_add_row(table);
    table_set_text(table, 0, call);
    table_set_text(table, 1, operation);
    table_set_text(table, 2, form);
    TABLE_SET(table, 3, steps * r->work.flops, steps * r->work.needed, steps * r->work.bytes, steps * r->ns,
              share_of(r->work.flops, seconds), share_of(r->work.bytes, seconds),
              share_of(r->work.flops, r->work.bytes), r->work.sent > 0 ? steps * r->work.sent : NAN);
    table_set_text(table, LIMIT, r->limit);
    TABLE_SET(table, LIMIT + 1, peaks_known(&run->measured) && seconds > 0 ? measured : NAN,
              peaks_known(&run->sheet) && seconds > 0 ? sheet : NAN);
    table_set_text(table, FLAG, utmost > 1 ? ABOVE : measured > 1 ? "above what was measured" : "");
}

static void add_pass(const Figures *f, Pass pass, Table *table) {
    OperationRow all = {.limit = ""};
    Least least = {0};
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (pass < PASS_COUNT && r->pass != pass) continue;
        all.ns += r->ns;
        work_add(&all.work, r->work);
        const Least own = least_of(&f->trace->run, r);
        least.measured += own.measured;
        least.sheet += own.sheet;
    }
    if (all.work.bytes > 0)
        add_work(f, "(sum)", pass < PASS_COUNT ? pass_name(pass) : "all", "", &all, least, table);
}

static void fill_work(const Figures *f, Table *table) {
    const TraceRun *run = &f->trace->run;
    bool above = false;
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        char label[LABEL_BYTES];
        snprintf(label, sizeof label, "%s %s", r->operation, pass_name(r->pass));
        add_work(f, r->call, label, form_name(r->form), r, least_of(run, r), table);
    }
    for (int pass = 0; pass <= PASS_COUNT; pass++) add_pass(f, (Pass)pass, table);
    for (int64_t i = 0; i < table->rows; i++)
        above |= strcmp(table->cells[i * table->column_count + FLAG].text, ABOVE) == 0;
    table_note(table, "limits measured here: %s; by the data sheet: %s", limits_text(&run->measured).text,
               limits_text(&run->sheet).text);
    if (above)
        table_note(table, "ERROR: a row is above 100%%: its work or its time is wrong, or the limits were "
                          "measured while the machine was busy");
}

Table table_work(const Figures *f) {
    static const TableColumn columns[] = {{"place", "Call", CELL_TEXT},
                                          {"operation", "Operation", CELL_TEXT},
                                          {"form", "Form", CELL_TEXT},
                                          {"flops", "Work done", CELL_FLOPS},
                                          {"flops_needed", "needed", CELL_FLOPS},
                                          {"bytes", "Least bytes", CELL_BYTES},
                                          {"device_ns", "Time", CELL_TIME},
                                          {"flop_rate", "FLOP/s", CELL_FLOP_RATE},
                                          {"byte_rate", "Bytes/s", CELL_BYTE_RATE},
                                          {"intensity", "FLOP/byte", CELL_NUMBER},
                                          {"sent_bytes", "Least sent", CELL_BYTES},
                                          {"limit", "Limit", CELL_TEXT},
                                          {"of_measured", "of measured", CELL_SHARE},
                                          {"of_sheet", "of data sheet", CELL_SHARE},
                                          {"flag", "", CELL_TEXT}};
    Table table = TABLE("work", "Work", columns);
    fill_work(f, &table);
    return table;
}

/* ---- memory ---- */

Table table_memory(const Figures *f) {
    static const TableColumn columns[] = {{"class", "Memory", CELL_TEXT},
                                          {"at_peak_bytes", "At the peak", CELL_BYTES},
                                          {"share", "Share", CELL_SHARE},
                                          {"own_peak_bytes", "Its own peak", CELL_BYTES}};
    Table table = TABLE("memory", "Memory", columns);
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) {
        if (!f->own_peaks[k]) continue;
        double bytes = (double)f->peak_classes[k];
        table_add_row(&table);
        table_set_text(&table, 0, memory_class_name(k));
        TABLE_SET(&table, 1, bytes, share_of(bytes, (double)f->peak_bytes), (double)f->own_peaks[k]);
    }
    table_note(&table, "peak %.2f MiB, %.3f ms after the start of the first recorded step",
               (double)f->peak_bytes / 1048576, 1e-6 * (double)f->peak_at);
    return table;
}

/* Walks the samples; `held` is the memory of each class after sample i. */
static int64_t apply(const Trace *t, int64_t i, int64_t held[MEMORY_CLASS_COUNT]) {
    int64_t sum = 0;
    held[t->memory[i].class_] = t->memory[i].bytes;
    for (int k = 0; k < MEMORY_CLASS_COUNT; k++) sum += held[k];
    return sum;
}

/* Makes a table of the peak within each part of the first step. */
Table table_timeline(const Trace *t) {
    static const TableColumn columns[] = {
        {"until_ns", "Until", CELL_TIME},       {"parameters", "Parameters", CELL_BYTES},
        {"gradients", "Gradients", CELL_BYTES}, {"optimizer", "Optimizer", CELL_BYTES},
        {"saved", "Saved", CELL_BYTES},         {"scratch", "Scratch", CELL_BYTES},
        {"cache", "Cache", CELL_BYTES},         {"workspace", "Workspace", CELL_BYTES},
        {"all_bytes", "All", CELL_BYTES}};
    enum { PARTS = 16 };
    int64_t held[MEMORY_CLASS_COUNT] = {0}, sum = 0, next = 0, first = -1;
    Table table = TABLE("memory_timeline", "Memory in the first recorded step", columns);
    for (int64_t i = 0; i < t->count && first < 0; i++)
        if (t->events[i].kind == TRACE_STEP) first = i;
    if (first < 0) return table;
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
        table_add_row(&table);
        table_set(&table, 0, (double)(until - step->begin));
        for (int k = 0; k < MEMORY_CLASS_COUNT; k++) table_set(&table, 1 + k, (double)fullest[k]);
        table_set(&table, 1 + MEMORY_CLASS_COUNT, (double)most);
    }
    table_note(&table, "Each row is the fullest moment of a sixteenth of the step, as the host sees it.");
    return table;
}

Table table_tensors(const Trace *t) {
    static const TableColumn columns[] = {{"name", "Tensor", CELL_TEXT},
                                          {"class", "Memory", CELL_TEXT},
                                          {"bytes", "Size", CELL_BYTES},
                                          {"share", "of all", CELL_SHARE}};
    enum { TENSORS_MOST = 100 };
    double all = 0;
    for (int64_t i = 0; i < t->tensor_count; i++) all += (double)t->tensors[i].bytes;
    Table table = TABLE("tensors", "Largest tensors at the peak of their class", columns);
    for (int64_t i = 0; i < t->tensor_count && i < TENSORS_MOST; i++) {
        const TraceTensor *tensor = &t->tensors[i];
        table_add_row(&table);
        table_set_text(&table, 0, tensor->name);
        table_set_text(&table, 1, memory_class_name(tensor->class_));
        TABLE_SET(&table, 2, (double)tensor->bytes, share_of((double)tensor->bytes, all));
    }
    table_note(&table, "Each class has memory of its own, as much as it needs at its own peak.");
    return table;
}
