/* How long kernels wait between the host and the device, where CUPTI was asked for it (--profile-latency). */
#include "profile/kernel_name.h"
#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>

/* From the call to the command buffer, in it, and from its submission to the kernel's start. */
enum { CALLED, BUFFERED, SUBMITTED, WAITS };

typedef struct {
    const char **names; // (count) of kernels, the trace's
    int64_t count, room;
    RowValues waits[WAITS];
} Waiting;

static int64_t row_of(Waiting *w, const char *name) {
    for (int64_t row = 0; row < w->count; row++)
        if (w->names[row] == name) return row;
    w->names = memory_grow(w->names, &w->room, w->count + 1, sizeof *w->names);
    w->names[w->count] = name;
    return w->count++;
}

static void gather(const Trace *t, Waiting *w) {
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (e->kind != TRACE_KERNEL || !e->queued || !e->submitted || !trace_in_step(e)) continue;
        int64_t row = row_of(w, e->name);
        if (e->launch >= 0)
            row_values_add(&w->waits[CALLED], row, fmax(0, (double)(e->queued - t->events[e->launch].begin)));
        row_values_add(&w->waits[BUFFERED], row, fmax(0, (double)(e->submitted - e->queued)));
        row_values_add(&w->waits[SUBMITTED], row, fmax(0, (double)(e->begin - e->submitted)));
    }
}

static void fill(Waiting *w, unsigned names, Table *table) {
    Stats *stats[WAITS];
    for (int i = 0; i < WAITS; i++) stats[i] = row_values_stats(&w->waits[i], w->count);
    for (int64_t row = 0; row < w->count; row++) {
        char name[KERNEL_NAME_BYTES];
        kernel_label(w->names[row], name);
        table_add_row(table);
        table_set_text(table, 0, names & NAMES_FULL ? w->names[row] : name);
        table_set(table, 1, (double)stats[BUFFERED][row].count);
        for (int i = 0; i < WAITS; i++)
            if (stats[i][row].count) TABLE_SET(table, 2 + 2 * i, stats[i][row].median, stats[i][row].most);
    }
    for (int i = 0; i < WAITS; i++) memory_free(stats[i]);
}

Table table_latency(const Trace *t, unsigned names) {
    static const TableColumn columns[] = {{"name", "Kernel", CELL_TEXT},
                                          {"instances", "Instances", CELL_COUNT},
                                          {"called_ns", "Call to queue", CELL_TIME},
                                          {"called_most_ns", "Maximum", CELL_TIME},
                                          {"buffered_ns", "In the queue", CELL_TIME},
                                          {"buffered_most_ns", "Maximum", CELL_TIME},
                                          {"submitted_ns", "To its begin", CELL_TIME},
                                          {"submitted_most_ns", "Maximum", CELL_TIME}};
    Waiting waiting = {0};
    Table table = TABLE("latency", "Launch latency", columns);
    gather(t, &waiting);
    fill(&waiting, names, &table);
    memory_free(waiting.names);
    table_note(&table,
               "Medians: from the host's call until the kernel is in the command buffer, in the buffer, "
               "and from its submission to its start.");
    return table;
}
