/* Tables of operators with their kernels, and of ranges; a row per name, for host and device. */
#include "report/kernel_name.h"
#include "report/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Rows by name, with the times of each. A kernel's row is below an operator's. */
typedef struct {
    const char *name; // owned by the trace or by the rows
    int64_t above;    // parent row; -1: none
    Phase phase;      // PHASE_COUNT: any
    Stats host, device;
} TimedRow;

typedef struct {
    Trace *names;
    TimedRow *rows;
    int64_t count, room;
    RowValues host, device;
} TimedRows;

static int64_t row_of(TimedRows *r, const char *name, int64_t above, Phase phase) {
    name = trace_name(r->names, name);
    for (int64_t i = 0; i < r->count; i++)
        if (r->rows[i].name == name && r->rows[i].above == above && r->rows[i].phase == phase) return i;
    r->rows = memory_grow(r->rows, &r->room, r->count + 1, sizeof *r->rows);
    r->rows[r->count] = (TimedRow){.name = name, .above = above, .phase = phase};
    return r->count++;
}

static int slower(const void *a, const void *b) {
    const TimedRow *const *x = a, *const *y = b;
    double p = (*x)->device.total + (*x)->host.total, q = (*y)->device.total + (*y)->host.total;
    return (p < q) - (p > q);
}

static void print_row(const Trace *t, const TimedRow *row, const TimedRow *above, Table *table) {
    const Stats *h = &row->host, *d = &row->device;
    char name[KERNEL_NAME_BYTES + 2];
    snprintf(name, sizeof name, "%s%s", row->above >= 0 ? "  " : "", row->name);
    table_add_row(table);
    table_set_text(table, 0, name);
    TABLE_SET(table, 1, (double)(h->count ? h->count : d->count));
    if (h->count)
        TABLE_SET(table, 2, h->total, h->mean, h->most, h->least, share_of(h->total, trace_steps_ns(t)));
    if (d->count)
        TABLE_SET(table, 7, d->total, d->mean, d->most, d->least, share_of(d->total, trace_device_ns(t)));
    if (above)
        table_set(table, table_column(table, "operator_share"), share_of(d->total, above->device.total));
    int in = table_column(table, "phase");
    if (in >= 0) table_set_text(table, in, row->phase < PHASE_COUNT ? phase_name(row->phase) : "");
}

/* Prints the longest row first, each followed by the rows below it. */
static void print_rows(const Trace *t, TimedRows *r, Table *table) {
    OWNED Stats *host = row_values_stats(&r->host, r->count),
                *device = row_values_stats(&r->device, r->count);
    OWNED const TimedRow **sorted = memory_array((size_t)r->count + 1, sizeof *sorted);
    for (int64_t i = 0; i < r->count; i++) {
        r->rows[i].host = host[i];
        r->rows[i].device = device[i];
        sorted[i] = &r->rows[i];
    }
    qsort(sorted, (size_t)r->count, sizeof *sorted, slower);
    for (int64_t i = 0; i < r->count; i++) {
        if (sorted[i]->above >= 0) continue;
        print_row(t, sorted[i], NULL, table);
        for (int64_t k = 0; k < r->count; k++)
            if (sorted[k]->above == sorted[i] - r->rows) print_row(t, sorted[k], sorted[i], table);
    }
    memory_free(r->rows);
    trace_close(r->names);
}

/* Appends the thread with THREADS_SEPARATE: "linear forward, thread 0", "read a batch, reader 1". */
static void thread_label(const char *name, int32_t thread, unsigned names, char text[KERNEL_NAME_BYTES]) {
    const bool reader = thread >= TRACE_READERS;
    if (names & THREADS_SEPARATE)
        snprintf(text, KERNEL_NAME_BYTES, "%.160s, %s %d", name, reader ? "reader" : "thread",
                 reader ? thread - TRACE_READERS + 1 : thread);
    else
        snprintf(text, KERNEL_NAME_BYTES, "%s", name);
}

Table table_operators(const Trace *t, unsigned names) {
    static const TableColumn columns[] = {
        {"name", "Operator", CELL_TEXT}, TIMED, {"operator_share", "of operator", CELL_SHARE}};
    TimedRows rows = {.names = trace_open()};
    Table table = TABLE("operators", "Operators, and their kernels below them", columns);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        char label[LABEL_BYTES], row_label[KERNEL_NAME_BYTES], kernel[KERNEL_NAME_BYTES];
        if (!trace_in_step(e) || !e->operation || (e->kind != TRACE_OPERATION && e->kind != TRACE_KERNEL))
            continue;
        const int64_t operation = trace_above(t, i, TRACE_OPERATION); // for a kernel, the operation that
                                                                      // launched it
        operation_label(e, label);
        thread_label(label, operation < 0 ? 0 : t->events[operation].thread, names, row_label);
        int64_t row = row_of(&rows, row_label, -1, PHASE_COUNT);
        if (e->kind == TRACE_OPERATION) {
            row_values_add(&rows.host, row, (double)trace_length(e));
            row_values_add(&rows.device, row, (double)e->device_total);
            continue;
        }
        if (names & OPERATORS_ALONE) continue;
        kernel_label(e->name, kernel);
        row_values_add(&rows.device, row_of(&rows, kernel, row, PHASE_COUNT), (double)trace_length(e));
    }
    print_rows(t, &rows, &table);
    return table;
}

/* Fills in either the user's ranges or the program's. */
static void fill_ranges(const Trace *t, bool own, unsigned names, Table *table) {
    TimedRows rows = {.names = trace_open()};
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        const bool read = names & THREADS_SEPARATE && e->thread >= TRACE_READERS; // prefetched, so in no step
        char label[KERNEL_NAME_BYTES];
        if (e->kind > TRACE_SCOPE || !(trace_in_step(e) || read) || e->own != own) continue;
        thread_label(e->name, e->thread, names, label);
        int64_t row = row_of(&rows, label, -1, e->kind == TRACE_SCOPE ? e->phase : PHASE_COUNT);
        row_values_add(&rows.host, row, (double)trace_length(e));
        row_values_add(&rows.device, row, (double)e->device_total);
    }
    print_rows(t, &rows, table);
}

static const TableColumn of_ranges[] = {{"name", "Range", CELL_TEXT}, TIMED, {"phase", "In", CELL_TEXT}};

Table table_ranges(const Trace *t, unsigned names) {
    Table table = TABLE("ranges", "Ranges of the program", of_ranges);
    fill_ranges(t, false, names, &table);
    return table;
}

Table table_user_defined(const Trace *t, unsigned names) {
    Table table = TABLE("user_defined", "UserDefined: the ranges of PROFILE_SCOPE", of_ranges);
    fill_ranges(t, true, names, &table);
    if (!table.rows) table_note(&table, "there are none");
    return table;
}
