#include "profile/trace_ranks.h"

#include "base/memory.h"
#include "comm/rendezvous.h"
#include "profile/trace_pack.h"

static int64_t moved(int64_t time, int64_t by) {
    return time > 0 ? time + by : time; // 0: unknown
}

static void move(Trace *t, int64_t by) {
    t->run.origin -= by;
    for (int64_t i = 0; i < t->count; i++) {
        TraceEvent *e = &t->events[i];
        e->begin += by;
        e->end += by;
        e->queued = moved(e->queued, by);
        e->submitted = moved(e->submitted, by);
    }
    for (int64_t i = 0; i < t->memory_count; i++) t->memory[i].at += by;
}

/* Converts times to the clock of rank 0; time 0 is when the first rank began. */
static Status take_others(Trace *t, const RankPart *parts, const RankClock *clocks, int size) {
    int64_t first = t->run.origin;
    t->others = memory_array((size_t)size, sizeof *t->others);
    for (int rank = 1; rank < size; rank++) {
        Trace *other;
        TRY(trace_unpack(parts[rank].data, parts[rank].bytes, &other));
        t->others[t->other_count++] = other;
        other->run.clock_ahead = 1e9 * clocks[rank].ahead;
        other->run.clock_within = 1e9 * clocks[rank].within;
        other->run.origin -= (int64_t)other->run.clock_ahead;
        if (other->run.origin < first) first = other->run.origin;
    }
    for (int rank = 0; rank < size; rank++) {
        Trace *own = rank ? t->others[rank - 1] : t;
        move(own, own->run.origin - first);
    }
    return OK;
}

Status trace_gather(Trace *t, Comm *comm) {
    RankPart mine = {0}, *parts = memory_array((size_t)comm->size, sizeof *parts);
    OWNED RankClock *clocks = memory_array((size_t)comm->size, sizeof *clocks);
    if (comm->rank > 0) trace_pack(t, &mine.data, &mine.bytes);
    Status status = comm_barrier(comm); // so that no rank waits while clocks are compared
    if (!status) status = rendezvous_clocks(comm->rendezvous, clocks);
    if (!status) status = rendezvous_collect(comm->rendezvous, mine, parts);
    if (!status && comm->rank == 0) status = take_others(t, parts, clocks, comm->size);
    for (int rank = 0; rank < comm->size; rank++) memory_free(parts[rank].data);
    memory_free(mine.data);
    memory_free(parts);
    return status;
}
