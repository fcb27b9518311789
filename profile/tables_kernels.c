/* Kernels, copies and fills, and the ranges that the program named. */
#include "profile/kernel_name.h"
#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>

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
    row_values_free(&rows->values);
    row_values_free(&rows->queued);
}

static Status rows_row(Rows *rows, int64_t event, int64_t *row) {
    if (rows->count == rows->room) {
        int64_t room = 2 * rows->room + 64;
        int64_t *moved = memory_resize(rows->example, (size_t)room * sizeof *moved);
        if (!moved) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
        rows->example = moved;
        rows->room = room;
    }
    rows->example[ *row = rows->count++] = event;
    return OK;
}

/* The row of the event's name. */
static Status rows_add(Rows *rows, const Trace *t, int64_t event) {
    int64_t row = 0, length = trace_length(&t->events[event]);
    while (row < rows->count && t->events[rows->example[row]].name != t->events[event].name) row++;
    if (row == rows->count)
        TRY(rows_row(rows, event, &row));
    else if (length > trace_length(&t->events[rows->example[row]]))
        rows->example[row] = event;
    const TraceEvent *e = &t->events[event];
    if (e->launch >= 0)
        TRY(row_values_add(&rows->queued, row, fmax(0, (double)(e->begin - t->events[e->launch].begin))));
    return row_values_add(&rows->values, row, (double)length);
}

static Status rows_finish(Rows *rows) {
    rows->stats = memory_array((size_t)(rows->count ? rows->count : 1), sizeof *rows->stats);
    rows->queues = memory_array((size_t)(rows->count ? rows->count : 1), sizeof *rows->queues);
    if (!rows->stats || !rows->queues)
        return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    TRY(row_values_stats(&rows->queued, rows->queues, rows->count));
    return row_values_stats(&rows->values, rows->stats, rows->count);
}

/* ---- kernels ---- */

/* What the kernel `name` served most, and how many others. */
static Status serves(const Trace *t, const char *name, char text[2 * LABEL_BYTES]) {
    enum { PLACES = OP_COUNT * PASS_COUNT };
    double ns[PLACES] = {0};
    const TraceEvent *example[PLACES] = {0};
    int most = -1, others = -1;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_KERNEL || e->name != name || !e->in_operation || !in_step(e)) continue;
        int place = (int)e->operation * PASS_COUNT + (int)e->pass;
        ns[place] += (double)trace_length(e);
        example[place] = e;
    }
    for (int i = 0; i < PLACES; i++) {
        if (example[i] && (most < 0 || ns[i] > ns[most])) most = i;
        others += example[i] != NULL;
    }
    char label[LABEL_BYTES] = "-";
    if (most >= 0) operation_label(example[most], label);
    if (others > 0)
        snprintf(text, 2 * LABEL_BYTES, "%s and %d more", label, others);
    else
        snprintf(text, 2 * LABEL_BYTES, "%s", label);
    return OK;
}

static Status set_shape(Table *table, int column, const KernelShape *k) {
    char grid[64], block[64];
    if (!k->grid[0]) return OK; // not told
    snprintf(grid, sizeof grid, "%dx%dx%d", k->grid[0], k->grid[1], k->grid[2]);
    snprintf(block, sizeof block, "%dx%dx%d", k->block[0], k->block[1], k->block[2]);
    TRY(table_set_text(table, column, grid));
    TRY(table_set_text(table, column + 1, block));
    table_set(table, column + 2, k->registers);
    table_set(table, column + 3, (double)k->shared_static + k->shared_dynamic);
    table_set(table, column + 4, k->occupancy);
    return OK;
}

/* Sums over all kernels, over everything on the device, and of the steps. */
typedef struct {
    double kernels, device, wall;
} Wholes;

static Status add_kernel(const Trace *t, unsigned names, const Rows *rows, int64_t row, Wholes whole,
                         Table *table) {
    const TraceEvent *e = &t->events[rows->example[row]];
    const Stats *s = &rows->stats[row], *queue = &rows->queues[row];
    char served[2 * LABEL_BYTES], decoded[KERNEL_NAME_BYTES], name[KERNEL_NAME_BYTES];
    kernel_decode(e->name, decoded);
    kernel_label(e->name, name);
    TRY(serves(t, e->name, served));
    TRY(table_add_row(table));
    TRY(table_set_text(table, 0, names & NAMES_FULL ? e->name : name));
    TRY(table_set_text(table, 1, served));
    table_set(table, 2, share_of(s->total, whole.kernels));
    table_set(table, 3, s->total);
    table_set(table, 4, (double)s->count);
    table_set(table, 5, s->mean);
    table_set(table, 6, s->median);
    table_set(table, 7, s->least);
    table_set(table, 8, s->most);
    table_set(table, 9, s->deviation);
    TRY(set_shape(table, 10, &e->kernel));
    if (queue->count) table_set(table, 15, queue->median);
    table_set(table, 16, share_of(s->total, whole.device));
    table_set(table, 17, share_of(s->total, whole.wall));
    return table_set_text(table, 18, decoded);
}

static Status fill_kernels(const Trace *t, unsigned names, Rows *rows, Table *table) {
    Wholes whole = {0, device_length(t), steps_length(t)};
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_KERNEL && in_step(&t->events[i])) {
            TRY(rows_add(rows, t, i));
            whole.kernels += (double)trace_length(&t->events[i]);
        }
    TRY(rows_finish(rows));
    for (int64_t i = 0; i < rows->count; i++) TRY(add_kernel(t, names, rows, i, whole, table));
    return table_arrange(table, &(TableView){.sort = "total_ns"});
}

Status table_kernels(const Trace *t, unsigned names, Table *table) {
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
    Rows rows = {0};
    *table = table_make("kernels", "Kernels", COLUMNS(columns));
    Status status = fill_kernels(t, names, &rows, table);
    rows_free(&rows);
    if (!status && t->run.source == SOURCE_CUPTI)
        status =
            table_note(table, "Queued: median time from the call that launches a kernel to its begin. One "
                              "that waits on the device for the one ahead (programmatic dependent launch) "
                              "begins when that is over.");
    if (!status && t->run.source == SOURCE_CLOCK)
        status = table_note(
            table, "On the CPU a kernel is a library's call, or a primitive that makes none: it has no "
                   "grid, block, registers, occupancy or queue.");
    if (!status && t->run.source == SOURCE_EVENTS)
        status =
            table_note(table, "Without CUPTI a row is a primitive, timed between CUDA events; its kernels' "
                              "shapes and queues are not known.");
    return status;
}

/* ---- copies ---- */

Status table_copies(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"kind", "Copy", CELL_TEXT},
                                          {"memory", "Host memory", CELL_TEXT},
                                          {"count", "Count", CELL_COUNT},
                                          {"bytes", "Size", CELL_BYTES},
                                          {"mean_bytes", "Average size", CELL_BYTES},
                                          {"total_ns", "Total", CELL_TIME},
                                          {"mean_ns", "Average", CELL_TIME},
                                          {"most_ns", "Maximum", CELL_TIME},
                                          {"rate", "Rate", CELL_BYTE_RATE}};
    enum { FILL = COPY_COUNT, KINDS };
    struct {
        double count, bytes, ns, most;
    } sums[KINDS][HOST_MEMORY_COUNT] = {{{0, 0, 0, 0}}};
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if ((e->kind != TRACE_COPY && e->kind != TRACE_FILL) || !in_step(e)) continue;
        int kind = e->kind == TRACE_FILL ? (int)FILL : (int)e->copy.direction;
        HostMemory host = e->copy.host;
        double length = (double)trace_length(e);
        sums[kind][host].count++;
        sums[kind][host].bytes += (double)e->copy.bytes;
        sums[kind][host].ns += length;
        if (length > sums[kind][host].most) sums[kind][host].most = length;
    }
    *table = table_make("copies", "Memory copies", COLUMNS(columns));
    for (int kind = 0; kind < KINDS; kind++)
        for (int host = 0; host < HOST_MEMORY_COUNT; host++) {
            if (!(sums[kind][host].count > 0)) continue;
            double count = sums[kind][host].count;
            TRY(table_add_row(table));
            TRY(table_set_text(table, 0, kind == FILL ? "fill" : copy_name((CopyDirection)kind)));
            TRY(table_set_text(table, 1, host_memory_name((HostMemory)host)));
            table_set(table, 2, count);
            table_set(table, 3, sums[kind][host].bytes);
            table_set(table, 4, sums[kind][host].bytes / count);
            table_set(table, 5, sums[kind][host].ns);
            table_set(table, 6, sums[kind][host].ns / count);
            table_set(table, 7, sums[kind][host].most);
            table_set(table, 8, share_of(sums[kind][host].bytes, 1e-9 * sums[kind][host].ns));
        }
    if (t->run.source == SOURCE_CUPTI) return OK;
    return table_note(table, t->run.source == SOURCE_CLOCK
                                 ? "On the CPU both sides of a copy are the same memory."
                                 : "Without CUPTI it is not known whether the host's memory is pinned.");
}

/* ---- ranges ---- */

static Status fill_ranges(const Trace *t, Rows *rows, RowValues *device, Table *table) {
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind > TRACE_SCOPE || !in_step(e)) continue;
        TRY(rows_add(rows, t, i));
        int64_t row = rows->values.values[rows->values.count - 1].row;
        TRY(row_values_add(device, row, (double)e->device_total));
    }
    TRY(rows_finish(rows));
    Stats *on_device = memory_array((size_t)(rows->count ? rows->count : 1), sizeof *on_device);
    if (!on_device) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    Status status = row_values_stats(device, on_device, rows->count);
    for (int64_t i = 0; i < rows->count && !status; i++) {
        const Stats *s = &rows->stats[i];
        status = table_add_row(table);
        if (!status) status = table_set_text(table, 0, t->events[rows->example[i]].name);
        if (status) break;
        const double cells[] = {(double)s->count, s->total,           s->mean,          s->least,
                                s->most,          on_device[i].total, on_device[i].mean};
        for (int k = 0; k < 7; k++) table_set(table, 1 + k, cells[k]);
    }
    memory_free(on_device);
    return status;
}

Status table_ranges(const Trace *t, Table *table) {
    static const TableColumn columns[] = {{"name", "Range", CELL_TEXT},
                                          {"calls", "Calls", CELL_COUNT},
                                          {"cpu_ns", "CPU total", CELL_TIME},
                                          {"cpu_mean_ns", "CPU average", CELL_TIME},
                                          {"cpu_least_ns", "CPU minimum", CELL_TIME},
                                          {"cpu_most_ns", "CPU maximum", CELL_TIME},
                                          {"device_ns", "Device total", CELL_TIME},
                                          {"device_mean_ns", "Device average", CELL_TIME}};
    Rows rows = {0};
    RowValues device = {0};
    *table = table_make("ranges", "User ranges", COLUMNS(columns));
    Status status = fill_ranges(t, &rows, &device, table);
    rows_free(&rows);
    row_values_free(&device);
    return status;
}
