/* Kernels, copies and fills. */
#include "report/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- kernels ---- */

/* The operation that launched the kernel most, and the number of others. */
static void print_served(const KernelRow *k, char text[2 * LABEL_BYTES]) {
    const KernelServed *most = k->served;
    for (int64_t i = 1; i < k->served_count; i++)
        if (k->served[i].ns > most->ns) most = &k->served[i];
    snprintf(text, 2 * LABEL_BYTES, most ? "%s %s" : "-", most ? most->operation : "",
             most ? pass_name(most->pass) : "");
    size_t used = strlen(text);
    if (k->served_count > 1)
        snprintf(text + used, 2 * LABEL_BYTES - used, " and %d more", (int)k->served_count - 1);
}

static const char *shown_name(const KernelRow *k, unsigned names) {
    return names & NAMES_FULL ? k->name : k->label;
}

static void set_shape(Table *table, int column, const KernelShape *k) {
    char grid[64], block[64];
    if (!k->grid[0]) return; // unknown launch parameters
    snprintf(grid, sizeof grid, "%dx%dx%d", k->grid[0], k->grid[1], k->grid[2]);
    snprintf(block, sizeof block, "%dx%dx%d", k->block[0], k->block[1], k->block[2]);
    table_set_text(table, column, grid);
    table_set_text(table, column + 1, block);
    TABLE_SET(table, column + 2, k->registers, (double)k->shared_static + k->shared_dynamic, k->occupancy);
}

static void fill_kernels(const Figures *f, unsigned names, Table *table) {
    double kernels = 0, device = trace_device_ns(f->trace), wall = trace_steps_ns(f->trace);
    for (int64_t i = 0; i < f->kernel_count; i++)
        if (f->kernels[i].kind == TRACE_KERNEL) kernels += f->kernels[i].times.total;
    for (int64_t i = 0; i < f->kernel_count; i++) {
        const KernelRow *k = &f->kernels[i];
        const Stats *s = &k->times;
        char served[2 * LABEL_BYTES];
        if (k->kind != TRACE_KERNEL) continue;
        print_served(k, served);
        table_add_row(table);
        table_set_text(table, 0, shown_name(k, names));
        table_set_text(table, 1, served);
        TABLE_SET(table, 2, share_of(s->total, kernels), s->total, (double)s->count, s->mean, s->median,
                  s->least, s->most, s->deviation);
        set_shape(table, 10, &k->longest->kernel);
        if (k->queued.count) table_set(table, 15, k->queued.median);
        TABLE_SET(table, 16, share_of(s->total, device), share_of(s->total, wall));
        table_set_text(table, 18, k->decoded);
    }
    table_arrange(table, &(TableView){.sort = "total_ns"});
}

Table table_kernels(const Figures *f, unsigned names) {
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
    Table table = TABLE("kernels", "Kernels", columns);
    fill_kernels(f, names, &table);
    table_note(&table, "%s", notes[f->trace->run.source]);
    return table;
}

/* ---- latency ---- */

/* How long kernels wait between the host and the device, if CUPTI recorded it (--profile-latency): from the
 * call to the command buffer, in it, and from its submission to the kernel's start. */
Table table_latency(const Figures *f, unsigned names) {
    static const TableColumn columns[] = {{"name", "Kernel", CELL_TEXT},
                                          {"instances", "Instances", CELL_COUNT},
                                          {"called_ns", "Call to queue", CELL_TIME},
                                          {"called_most_ns", "Maximum", CELL_TIME},
                                          {"buffered_ns", "In the queue", CELL_TIME},
                                          {"buffered_most_ns", "Maximum", CELL_TIME},
                                          {"submitted_ns", "To its begin", CELL_TIME},
                                          {"submitted_most_ns", "Maximum", CELL_TIME}};
    enum { CALLED, BUFFERED, SUBMITTED, WAITS };
    RowValues waits[WAITS] = {{0}};
    Stats *stats[WAITS];
    Table table = TABLE("latency", "Launch latency", columns);
    for (int64_t i = 0; i < f->trace->count; i++) {
        const TraceEvent *e = &f->trace->events[i];
        if (e->kind != TRACE_KERNEL || !e->queued || !e->submitted || !trace_in_step(e)) continue;
        int64_t row = figures_kernel(f, e);
        if (row < 0) continue;
        if (e->launch >= 0)
            row_values_add(&waits[CALLED], row,
                           fmax(0, (double)(e->queued - f->trace->events[e->launch].begin)));
        row_values_add(&waits[BUFFERED], row, fmax(0, (double)(e->submitted - e->queued)));
        row_values_add(&waits[SUBMITTED], row, fmax(0, (double)(e->begin - e->submitted)));
    }
    for (int i = 0; i < WAITS; i++) stats[i] = row_values_stats(&waits[i], f->kernel_count);
    for (int64_t row = 0; row < f->kernel_count; row++) {
        if (!stats[BUFFERED][row].count) continue;
        table_add_row(&table);
        table_set_text(&table, 0, shown_name(&f->kernels[row], names));
        table_set(&table, 1, (double)stats[BUFFERED][row].count);
        for (int i = 0; i < WAITS; i++)
            if (stats[i][row].count) TABLE_SET(&table, 2 + 2 * i, stats[i][row].median, stats[i][row].most);
    }
    for (int i = 0; i < WAITS; i++) memory_free(stats[i]);
    table_note(&table,
               "Medians: from the host's call until the kernel is in the command buffer, in the buffer, "
               "and from its submission to its start.");
    return table;
}

/* ---- copies ---- */

/* Time of copies, or fills, of one kind on the device, and of their calls on the host. */
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
        bool cpu = t->run.source == SOURCE_CLOCK; // on the CPU a copy is the call itself
        if (cpu || e->launch >= 0)
            series_add(&c->host, (double)trace_length(cpu ? e : &t->events[e->launch]));
    }
    Table table = TABLE("copies", "Memory copies", columns);
    for (int kind = 0; kind < KINDS; kind++)
        for (int host = 0; host < HOST_MEMORY_COUNT; host++)
            add_copies(t, kind == FILL ? "fill" : copy_name(kind), (HostMemory)host, &sums[kind][host],
                       &table);
    if (t->run.source == SOURCE_CLOCK)
        table_note(&table, "On the CPU both sides of a copy are the same memory.");
    if (t->run.source == SOURCE_EVENTS)
        table_note(&table,
                   "Without CUPTI it is not known whether the host's memory is pinned, nor how long the "
                   "calls took.");
    return table;
}
