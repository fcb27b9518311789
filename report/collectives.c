#include "report/collectives.h"

#include "base/memory.h"

#include <string.h>

/* ---- matching collectives ---- */

static bool is_collective(const TraceEvent *e) {
    return e->kind == TRACE_OPERATION && e->category == CATEGORY_COMMUNICATION && trace_in_step(e);
}

static const char *name_of(const Trace *t, int64_t event) {
    for (int64_t i = event + 1; i < t->count && t->events[i].parent >= event; i++)
        if (t->events[i].kind == TRACE_PRIMITIVE) return t->events[i].name;
    return t->events[event].name;
}

/* The size of the whole tensor: each rank sends everything but its own part, in an all-reduce twice. */
static double whole_bytes(Traffic kind, double sent, int ranks) {
    double times = kind == TRAFFIC_ALL_REDUCE ? 2 : 1;
    return ranks > 1 ? sent / times * ranks / (ranks - 1) : 0;
}

static bool waits(Traffic kind) {
    return kind != TRAFFIC_SCATTER && kind != TRAFFIC_SUM && kind != TRAFFIC_SPREAD;
}

/* The next collective of a trace from event `from` on; -1: none. */
static int64_t next_of(const Trace *t, int64_t from) {
    while (from < t->count && !is_collective(&t->events[from])) from++;
    return from < t->count ? from : -1;
}

static int64_t count_of(const Trace *t) {
    int64_t count = 0;
    for (int64_t i = next_of(t, 0); i >= 0; i = next_of(t, i + 1)) count++;
    return count;
}

/* Records how rank `rank` ran collective `c`; false if it differs from rank 0's. */
static bool add(Collected *c, int rank, const Trace *t, int64_t event, const Span *spans) {
    const TraceEvent *e = &t->events[event];
    Span span = spans[event];
    if (span.stream < 0) span = (Span){e->begin, e->end, -1};
    c->spans[rank] = span;
    c->events[rank] = event;
    if (rank == 0 || span.begin < c->spans[c->first].begin) c->first = rank;
    if (rank == 0 || span.begin > c->spans[c->last].begin) c->last = rank;
    if (rank == 0 || span.begin > c->begin) c->begin = span.begin;
    if (rank == 0 || span.end > c->end) c->end = span.end;
    return strcmp(c->name, name_of(t, event)) == 0 && c->sent == e->work.sent && c->step == e->step;
}

static void add_rank(Collectives *all, int rank, const Trace *t) {
    OWNED Span *spans = spans_make(t);
    int64_t event = -1;
    if (count_of(t) != all->count) all->mismatch = "ranks recorded other numbers of collectives";
    for (int64_t i = 0; i < all->count && !all->mismatch; i++) {
        Collected *c = &all->list[i];
        event = next_of(t, event + 1);
        if (rank == 0) {
            const TraceEvent *e = &t->events[event];
            c->name = name_of(t, event);
            c->kind = e->traffic;
            c->call = e->call ? e->call : e->name;
            c->waits = waits(e->traffic);
            c->step = e->step;
            c->sent = e->work.sent;
            c->bytes = whole_bytes(e->traffic, c->sent, all->ranks);
            c->spans = memory_array((size_t)all->ranks, sizeof *c->spans);
            c->events = memory_array((size_t)all->ranks, sizeof *c->events);
        }
        if (!add(c, rank, t, event, spans)) all->mismatch = "ranks recorded other collectives";
    }
}

Collectives collectives_of(const Trace *t) {
    Collectives all = {.count = count_of(t), .ranks = 1 + t->other_count};
    all.list = memory_array((size_t)all.count + 1, sizeof *all.list);
    for (int rank = 0; rank < all.ranks && !all.mismatch; rank++)
        add_rank(&all, rank, trace_of_rank(t, rank));
    if (all.mismatch) collectives_free(&all);
    return all;
}

void collectives_free(Collectives *all) {
    for (int64_t i = 0; i < all->count; i++) {
        memory_free(all->list[i].spans);
        memory_free(all->list[i].events);
    }
    memory_free(all->list);
    all->list = NULL;
    all->count = 0;
}

/* ---- overlap with computation ---- */

static bool communicates(const TraceEvent *e) {
    return (e->operation && e->category == CATEGORY_COMMUNICATION) || e->copy.direction == COPY_PEER;
}

Distribution distribution_of(const Trace *t) {
    enum { COMMUNICATION, COMPUTATION, EITHER, PARTS };
    OWNED Interval *intervals = memory_array((size_t)t->count + 1, sizeof *intervals);
    double ns[PARTS];
    for (int part = 0; part < PARTS; part++) {
        int64_t count = 0;
        for (int64_t i = 0; i < t->count; i++) {
            const TraceEvent *e = &t->events[i];
            if (!trace_on_device(e) || !trace_in_step(e)) continue;
            if (part == EITHER || communicates(e) == (part == COMMUNICATION))
                intervals[count++] = (Interval){e->begin, e->end};
        }
        ns[part] = (double)intervals_union(intervals, count);
    }
    return (Distribution){.computation = ns[COMPUTATION],
                          .communication = ns[COMMUNICATION],
                          .overlap = ns[COMMUNICATION] + ns[COMPUTATION] - ns[EITHER],
                          .exposed = ns[EITHER] - ns[COMPUTATION]};
}
