/* Kernels, copies and fills. */
#include "report/kernel_name.h"
#include "report/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* Rows by name, the times of each, and an event of each that shows what it looks like. */
typedef struct {
    int64_t *example; // (room) the longest event
    int64_t count, room;
    RowValues values, queued; // queued: from the call that launched it to its begin
    Stats *stats, *queues;
} Rows;

static void rows_free(Rows *rows) {
    memory_free(rows->example);
    memory_free(rows->stats);
    memory_free(rows->queues);
}

/* The row of an event's name. */
static int64_t row_of(Rows *rows, const Trace *t, int64_t event) {
    int64_t row = 0;
    while (row < rows->count && t->events[rows->example[row]].name != t->events[event].name) row++;
    if (row < rows->count) return row;
    rows->example = memory_grow(rows->example, &rows->room, rows->count + 1, sizeof *rows->example);
    rows->example[rows->count] = event;
    return rows->count++;
}

/* Adds an event to the row of its name, which it gives. */
static int64_t rows_add(Rows *rows, const Trace *t, int64_t event) {
    const TraceEvent *e = &t->events[event];
    int64_t row = row_of(rows, t, event);
    if (trace_length(e) > trace_length(&t->events[rows->example[row]])) rows->example[row] = event;
    if (e->launch >= 0)
        row_values_add(&rows->queued, row, fmax(0, (double)(e->begin - t->events[e->launch].begin)));
    row_values_add(&rows->values, row, (double)trace_length(e));
    return row;
}

static void rows_finish(Rows *rows) {
    rows->queues = row_values_stats(&rows->queued, rows->count);
    rows->stats = row_values_stats(&rows->values, rows->count);
}

/* ---- kernels ---- */

/* An operation and pass that a kernel served. */
typedef struct {
    const TraceEvent *example;
    double ns;
} Served;

/* What the kernel `name` served most, and how many others. */
static void serves(const Trace *t, const char *name, char text[2 * LABEL_BYTES]) {
    enum { SERVED_MOST = 64 };
    Served served[SERVED_MOST] = {{0}}, most = {0};
    int count = 0;
    char label[LABEL_BYTES] = "-";
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i], *other;
        if (e->kind != TRACE_KERNEL || e->name != name || !e->operation || !trace_in_step(e)) continue;
        int at = 0;
        for (; at < count; at++) {
            other = served[at].example;
            if (e->pass == other->pass && strcmp(e->operation, other->operation) == 0) break;
        }
        if (at == SERVED_MOST) continue;
        count += at == count;
        served[at] = (Served){e, served[at].ns + (double)trace_length(e)};
    }
    for (int i = 0; i < count; i++)
        if (served[i].ns > most.ns || !most.example) most = served[i];
    if (count) operation_label(most.example, label);
    if (count > 1)
        snprintf(text, 2 * LABEL_BYTES, "%s and %d more", label, count - 1);
    else
        snprintf(text, 2 * LABEL_BYTES, "%s", label);
}

static void set_kernel_name(Table *table, const char *name, unsigned names) {
    char label[KERNEL_NAME_BYTES];
    kernel_label(name, label);
    table_set_text(table, 0, names & NAMES_FULL ? name : label);
}

static void set_shape(Table *table, int column, const KernelShape *k) {
    char grid[64], block[64];
    if (!k->grid[0]) return; // not told
    snprintf(grid, sizeof grid, "%dx%dx%d", k->grid[0], k->grid[1], k->grid[2]);
    snprintf(block, sizeof block, "%dx%dx%d", k->block[0], k->block[1], k->block[2]);
    table_set_text(table, column, grid);
    table_set_text(table, column + 1, block);
    TABLE_SET(table, column + 2, k->registers, (double)k->shared_static + k->shared_dynamic, k->occupancy);
}

/* Sums over all kernels, over everything on the device, and of the steps. */
typedef struct {
    double kernels, device, wall;
} Wholes;

static void add_kernel(const Trace *t, unsigned names, const Rows *rows, int64_t row, Wholes whole,
                       Table *table) {
    const TraceEvent *e = &t->events[rows->example[row]];
    const Stats *s = &rows->stats[row], *queue = &rows->queues[row];
    char served[2 * LABEL_BYTES], decoded[KERNEL_NAME_BYTES];
    kernel_decode(e->name, decoded);
    serves(t, e->name, served);
    table_add_row(table);
    set_kernel_name(table, e->name, names);
    table_set_text(table, 1, served);
    TABLE_SET(table, 2, share_of(s->total, whole.kernels), s->total, (double)s->count, s->mean, s->median,
              s->least, s->most, s->deviation);
    set_shape(table, 10, &e->kernel);
    if (queue->count) table_set(table, 15, queue->median);
    TABLE_SET(table, 16, share_of(s->total, whole.device), share_of(s->total, whole.wall));
    table_set_text(table, 18, decoded);
}

static void fill_kernels(const Trace *t, unsigned names, Rows *rows, Table *table) {
    Wholes whole = {0, trace_device_ns(t), trace_steps_ns(t)};
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_KERNEL && trace_in_step(&t->events[i])) {
            rows_add(rows, t, i);
            whole.kernels += (double)trace_length(&t->events[i]);
        }
    rows_finish(rows);
    for (int64_t i = 0; i < rows->count; i++) add_kernel(t, names, rows, i, whole, table);
    table_arrange(table, &(TableView){.sort = "total_ns"});
}

Table table_kernels(const Trace *t, unsigned names) {
    static const TableColumn columns[] = {{"name", "Kernel", CELL_TEXT},
                                          {"operation", "Operation", CELL_TEXT},
                                          {"share", "Time %", CELL_SHARE},
                                          {"total_ns", "Total", CELL_TIME},
                                          {"instances", "Instances", CELL_COUNT},
                                          {"mean_ns", "Average", CELL_TIME},
                                          {"median_ns", "Median", CELL_TIME},
                                          {"least_ns", "Minimum", CELL_TIME},
                                          {"most_ns", "Maximum", CELL_TIME},
                                          {"deviation_ns", "Deviation", CELL_TIME},
                                          {"grid", "Grid", CELL_TEXT},
                                          {"block", "Block", CELL_TEXT},
                                          {"registers", "Registers", CELL_COUNT},
                                          {"shared_bytes", "Shared", CELL_BYTES},
                                          {"occupancy", "Occupancy", CELL_SHARE},
                                          {"queued_ns", "Queued", CELL_TIME},
                                          {"device_share", "of device", CELL_SHARE},
                                          {"wall_share", "of wall", CELL_SHARE},
                                          {"decoded", "Name tells", CELL_TEXT}};
    static const char *const notes[] = {
        [SOURCE_CUPTI] =
            "Queued: median time from the call that launches a kernel to its start. One that waits on the "
            "device for the one ahead (programmatic dependent launch) starts when that has ended.",
        [SOURCE_EVENTS] =
            "Without CUPTI a row is a primitive, timed between CUDA events; its kernels' shapes and "
            "queues are not known.",
        [SOURCE_CLOCK] =
            "On the CPU a kernel is a library's call, or a primitive that makes none: it has no grid, "
            "block, registers, occupancy or queue."};
    Rows rows = {0};
    Table table = TABLE("kernels", "Kernels", columns);
    fill_kernels(t, names, &rows, &table);
    rows_free(&rows);
    table_note(&table, "%s", notes[t->run.source]);
    return table;
}

/* ---- latency ---- */

/* How long kernels wait between the host and the device, where CUPTI was asked for it (--profile-latency):
 * from the call to the command buffer, in it, and from its submission to the kernel's start. */
Table table_latency(const Trace *t, unsigned names) {
    static const TableColumn columns[] = {{"name", "Kernel", CELL_TEXT},
                                          {"instances", "Instances", CELL_COUNT},
                                          {"called_ns", "Call to queue", CELL_TIME},
                                          {"called_most_ns", "Maximum", CELL_TIME},
                                          {"buffered_ns", "In the queue", CELL_TIME},
                                          {"buffered_most_ns", "Maximum", CELL_TIME},
                                          {"submitted_ns", "To its begin", CELL_TIME},
                                          {"submitted_most_ns", "Maximum", CELL_TIME}};
    enum { CALLED, BUFFERED, SUBMITTED, WAITS };
    Rows rows = {0};
    RowValues waits[WAITS] = {{0}};
    Stats *stats[WAITS];
    Table table = TABLE("latency", "Launch latency", columns);
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_KERNEL || !e->queued || !e->submitted || !trace_in_step(e)) continue;
        int64_t row = row_of(&rows, t, i);
        if (e->launch >= 0)
            row_values_add(&waits[CALLED], row, fmax(0, (double)(e->queued - t->events[e->launch].begin)));
        row_values_add(&waits[BUFFERED], row, fmax(0, (double)(e->submitted - e->queued)));
        row_values_add(&waits[SUBMITTED], row, fmax(0, (double)(e->begin - e->submitted)));
    }
    for (int i = 0; i < WAITS; i++) stats[i] = row_values_stats(&waits[i], rows.count);
    for (int64_t row = 0; row < rows.count; row++) {
        table_add_row(&table);
        set_kernel_name(&table, t->events[rows.example[row]].name, names);
        table_set(&table, 1, (double)stats[BUFFERED][row].count);
        for (int i = 0; i < WAITS; i++)
            if (stats[i][row].count) TABLE_SET(&table, 2 + 2 * i, stats[i][row].median, stats[i][row].most);
    }
    for (int i = 0; i < WAITS; i++) memory_free(stats[i]);
    rows_free(&rows);
    table_note(&table,
               "Medians: from the host's call until the kernel is in the command buffer, in the buffer, "
               "and from its submission to its start.");
    return table;
}

/* ---- copies ---- */

/* What copies, or fills, of one kind took on the device, and their calls on the host. */
typedef struct {
    double bytes;
    Series device, host;
} Copies;

static void add_copies(const Trace *t, const char *name, HostMemory memory, Copies *c, Table *table) {
    Stats device = stats_make(c->device.values, c->device.count),
          host = stats_make(c->host.values, c->host.count);
    if (device.count) {
        double count = (double)device.count;
        table_add_row(table);
        table_set_text(table, 0, name);
        table_set_text(table, 1, host_memory_name(memory));
        TABLE_SET(table, 2, count, c->bytes, c->bytes / count, device.total, device.mean, device.most,
                  device.least, share_of(device.total, trace_device_ns(t)),
                  share_of(c->bytes, 1e-9 * device.total), host.total, host.mean, host.most, host.least,
                  share_of(host.total, trace_steps_ns(t)));
    }
    memory_free(c->device.values);
    memory_free(c->host.values);
}

Table table_copies(const Trace *t) {
    static const TableColumn columns[] = {{"kind", "Copy", CELL_TEXT},
                                          {"memory", "Host memory", CELL_TEXT},
                                          {"count", "Calls", CELL_COUNT},
                                          {"bytes", "Size", CELL_BYTES},
                                          {"mean_bytes", "Average size", CELL_BYTES},
                                          {"total_ns", "Total", CELL_TIME},
                                          {"mean_ns", "Average", CELL_TIME},
                                          {"most_ns", "Maximum", CELL_TIME},
                                          {"least_ns", "Minimum", CELL_TIME},
                                          {"device_share", "Ratio", CELL_SHARE},
                                          {"rate", "Rate", CELL_BYTE_RATE},
                                          {"cpu_ns", "CPU total", CELL_TIME},
                                          {"cpu_mean_ns", "Average", CELL_TIME},
                                          {"cpu_most_ns", "Maximum", CELL_TIME},
                                          {"cpu_least_ns", "Minimum", CELL_TIME},
                                          {"cpu_share", "Ratio", CELL_SHARE}};
    enum { FILL = COPY_COUNT, KINDS };
    Copies sums[KINDS][HOST_MEMORY_COUNT] = {{{0}}};
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if ((e->kind != TRACE_COPY && e->kind != TRACE_FILL) || !trace_in_step(e)) continue;
        Copies *c = &sums[e->kind == TRACE_FILL ? (int)FILL : (int)e->copy.direction][e->copy.host];
        c->bytes += (double)e->copy.bytes;
        series_add(&c->device, (double)trace_length(e));
        bool cpu = t->run.source == SOURCE_CLOCK; // where it is the call
        if (cpu || e->launch >= 0)
            series_add(&c->host, (double)trace_length(cpu ? e : &t->events[e->launch]));
    }
    Table table = TABLE("copies", "Memory copies", columns);
    for (int kind = 0; kind < KINDS; kind++)
        for (int host = 0; host < HOST_MEMORY_COUNT; host++)
            add_copies(t, kind == FILL ? "fill" : copy_name((CopyDirection)kind), (HostMemory)host,
                       &sums[kind][host], &table);
    if (t->run.source == SOURCE_CLOCK)
        table_note(&table, "On the CPU both sides of a copy are the same memory.");
    if (t->run.source == SOURCE_EVENTS)
        table_note(&table,
                   "Without CUPTI it is not known whether the host's memory is pinned, nor how long the "
                   "calls took.");
    return table;
}
