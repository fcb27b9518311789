/* Tables of communication: its overlap, and its speed. */
#include "report/tables_internal.h"
#include "report/collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- distribution ---- */

static void add_distribution(Table *table, const char *name, Distribution d, double steps) {
    table_add_row(table);
    table_set_text(table, 0, name);
    TABLE_SET(table, 1, steps, d.computation, d.communication, d.overlap, d.exposed,
              share_of(d.exposed, steps));
}

Table table_distribution(const Trace *t) {
    static const TableColumn columns[] = {{"rank", "Rank", CELL_TEXT},
                                          {"steps_ns", "Steps", CELL_TIME},
                                          {"computation_ns", "Computation", CELL_TIME},
                                          {"communication_ns", "Communication", CELL_TIME},
                                          {"overlap_ns", "Overlap", CELL_TIME},
                                          {"exposed_ns", "Exposed communication", CELL_TIME},
                                          {"exposed_share", "of the steps", CELL_SHARE}};
    Table table = TABLE("distribution", "Distribution", columns);
    Distribution all = {0};
    double steps = 0;
    for (int32_t rank = 0; rank <= t->other_count; rank++) {
        const Trace *own = trace_of_rank(t, rank);
        Distribution d = distribution_of(own);
        char name[16];
        snprintf(name, sizeof name, "%d", rank);
        if (t->other_count) add_distribution(&table, name, d, trace_steps_ns(own));
        steps += trace_steps_ns(own);
        all.computation += d.computation;
        all.communication += d.communication;
        all.overlap += d.overlap;
        all.exposed += d.exposed;
    }
    add_distribution(&table, "all", all, steps);
    if (t->run.ranks <= 1) table_note(&table, "One device: nothing to communicate with.");
    if (t->run.ranks > 1 && t->run.source == SOURCE_EVENTS)
        table_note(&table, "CUDA events only time the device's main stream, not exchanges that run in "
                           "parallel; these need CUPTI");
    return table;
}

/* ---- communication ---- */

typedef struct {
    double calls, bytes, sent, ns, waiting, moving;
} Moved;

static void add_collective(Moved *m, const Collected *c, int ranks) {
    m->calls += 1;
    m->bytes += c->bytes;
    m->sent += c->sent;
    for (int r = 0; r < ranks; r++) {
        const Span *s = &c->spans[r];
        m->ns += (double)(s->end - s->begin) / ranks;
        if (!c->waits) m->moving += (double)(s->end - s->begin) / ranks;
        if (!c->waits) continue;
        m->waiting += fmax(0, (double)((c->begin < s->end ? c->begin : s->end) - s->begin)) / ranks;
    }
    if (c->waits) m->moving += fmax(0, (double)(c->end - c->begin));
}

static void add_moved(Table *table, const char *name, const char *call, const Moved *m, double link) {
    double rate = 1e9 * share_of(m->sent, m->moving);
    table_add_row(table);
    table_set_text(table, 0, name);
    table_set_text(table, 1, call);
    TABLE_SET(table, 2, m->calls, m->bytes, m->sent, m->ns, m->waiting, m->moving, rate,
              link > 0 ? rate / link : NAN);
}

static bool alike(const Collected *a, const Collected *b) {
    return strcmp(a->name, b->name) == 0 && strcmp(a->call, b->call) == 0;
}

/* A row for each kind, in order of first run. */
static void add_kinds(Table *table, const Collectives *all, double link) {
    Moved sum = {0};
    for (int64_t i = 0; i < all->count; i++) {
        const Collected *first = &all->list[i];
        bool seen = false;
        Moved m = {0};
        for (int64_t k = 0; k < i && !seen; k++) seen = alike(first, &all->list[k]);
        for (int64_t k = i; k < all->count && !seen; k++)
            if (alike(first, &all->list[k])) add_collective(&m, &all->list[k], all->ranks);
        if (!seen) add_moved(table, first->name, first->call, &m, link);
        add_collective(&sum, first, all->ranks);
    }
    if (all->count) add_moved(table, "(sum)", "", &sum, link);
}

Table table_communication(const Trace *t) {
    static const TableColumn columns[] = {{"collective", "Collective", CELL_TEXT},
                                          {"place", "Of", CELL_TEXT},
                                          {"calls", "Calls", CELL_COUNT},
                                          {"bytes", "Bytes", CELL_BYTES},
                                          {"sent_bytes", "Sent by each", CELL_BYTES},
                                          {"device_ns", "Time", CELL_TIME},
                                          {"waiting_ns", "of it waiting", CELL_TIME},
                                          {"moving_ns", "All in it", CELL_TIME},
                                          {"bus_rate", "Bus bandwidth", CELL_BYTE_RATE},
                                          {"of_measured", "of the link", CELL_SHARE}};
    const TraceRun *r = &t->run;
    Table table = TABLE("communication", "Communication", columns);
    Collectives all = collectives_of(t);
    add_kinds(&table, &all, r->measured.link);
    if (all.mismatch) table_note(&table, "ERROR: %s", all.mismatch);
    collectives_free(&all);
    table_note(&table,
               "%lld ranks, by %s. Time and waiting (for the last rank) are means over ranks; bus bandwidth "
               "(as in nccl-tests) is each rank's bytes over the time from the last rank's arrival to the "
               "end; for scatter and spread, which do not wait, over the rank's own time",
               (long long)r->ranks, r->engine);
    if (r->measured.link > 0)
        table_note(&table, "the link's limit, measured here with large collectives: %.4g GB/s",
                   1e-9 * r->measured.link);
    for (int32_t i = 0; i < t->other_count; i++) {
        const TraceRun *other = &t->others[i]->run;
        table_note(&table, "rank %d's clock was %.1f us ahead of rank 0's, to within %.1f us: corrected",
                   i + 1, 1e-3 * other->clock_ahead, 1e-3 * other->clock_within);
    }
    return table;
}
