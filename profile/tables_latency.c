/* How long kernels wait between the host and the device, where CUPTI was asked for it (--profile-latency). */
#include "profile/kernel_name.h"
#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>

/* From the call to the command buffer, in it, and from its submission to the kernel's begin. */
enum { CALLED, BUFFERED, SUBMITTED, WAITS };

typedef struct {
    const char **names; // (count) of kernels, the trace's
    int64_t count, room;
    RowValues waits[WAITS];
} Waiting;

static void waiting_free(Waiting *w) {
    memory_free(w->names);
    for (int i = 0; i < WAITS; i++) row_values_free(&w->waits[i]);
}

static Status row_of(Waiting *w, const char *name, int64_t *row) {
    for (*row = 0; *row < w->count; ++*row)
        if (w->names[*row] == name) return OK;
    if (w->count == w->room) {
        int64_t room = 2 * w->room + 64;
        const char **moved = memory_resize(w->names, (size_t)room * sizeof *moved);
        if (!moved) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
        w->names = moved;
        w->room = room;
    }
    w->names[w->count++] = name;
    return OK;
}

static Status gather(const Trace *t, Waiting *w) {
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        int64_t row;
        if (e->kind != TRACE_KERNEL || !e->queued || !e->submitted || !in_step(e)) continue;
        TRY(row_of(w, e->name, &row));
        if (e->launch >= 0)
            TRY(row_values_add(&w->waits[CALLED], row,
                               fmax(0, (double)(e->queued - t->events[e->launch].begin))));
        TRY(row_values_add(&w->waits[BUFFERED], row, fmax(0, (double)(e->submitted - e->queued))));
        TRY(row_values_add(&w->waits[SUBMITTED], row, fmax(0, (double)(e->begin - e->submitted))));
    }
    return OK;
}

static Status fill(Waiting *w, unsigned names, Stats *stats, Table *table) {
    for (int i = 0; i < WAITS; i++) TRY(row_values_stats(&w->waits[i], stats + i * w->count, w->count));
    for (int64_t row = 0; row < w->count; row++) {
        char name[KERNEL_NAME_BYTES];
        kernel_label(w->names[row], name);
        TRY(table_add_row(table));
        TRY(table_set_text(table, 0, names & NAMES_FULL ? w->names[row] : name));
        table_set(table, 1, (double)stats[BUFFERED * w->count + row].count);
        for (int i = 0; i < WAITS; i++) {
            const Stats *s = &stats[i * w->count + row];
            if (!s->count) continue;
            table_set(table, 2 + 2 * i, s->median);
            table_set(table, 3 + 2 * i, s->most);
        }
    }
    return OK;
}

Status table_latency(const Trace *t, unsigned names, Table *table) {
    static const TableColumn columns[] = {{"name", "Kernel", CELL_TEXT},
                                          {"instances", "Instances", CELL_COUNT},
                                          {"called_ns", "Call to queue", CELL_TIME},
                                          {"called_most_ns", "Maximum", CELL_TIME},
                                          {"buffered_ns", "In the queue", CELL_TIME},
                                          {"buffered_most_ns", "Maximum", CELL_TIME},
                                          {"submitted_ns", "To its begin", CELL_TIME},
                                          {"submitted_most_ns", "Maximum", CELL_TIME}};
    Waiting waiting = {0};
    *table = table_make("latency", "Launch latency", COLUMNS(columns));
    Status status = gather(t, &waiting);
    Stats *stats = status ? NULL : memory_array((size_t)(WAITS * waiting.count) + 1, sizeof *stats);
    if (!status && !stats) status = fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    if (!status) status = fill(&waiting, names, stats, table);
    memory_free(stats);
    waiting_free(&waiting);
    if (!status)
        status =
            table_note(table, "Medians: from the host's call until the kernel is in the command buffer, in "
                              "there, and from its submission to its begin.");
    return status;
}
