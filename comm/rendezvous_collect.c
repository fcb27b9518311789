/* What only rank 0 needs of the others. */
#include "base/memory.h"
#include "comm/rendezvous_internal.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { TRIPS = 64 };

static Status gone(const Rendezvous *r, int rank) {
    return fail(ERROR_DEVICE, "rank %d on %s has gone: %s", rank, r->hosts[rank], strerror(errno));
}

/* ---- parts ---- */

static Status take_part(const Rendezvous *r, int rank, RankPart *part) {
    const double until = device_clock() + r->seconds;
    uint64_t bytes;
    if (!wire_receive(r->talks[rank], &bytes, sizeof bytes, until)) return gone(r, rank);
    part->data = memory_reserve(bytes + 1);
    if (!part->data)
        return fail(ERROR_MEMORY, "out of host memory for %llu bytes of rank %d", (unsigned long long)bytes,
                    rank);
    part->bytes = bytes;
    return wire_receive(r->talks[rank], part->data, bytes, until) ? OK : gone(r, rank);
}

Status rendezvous_collect(Rendezvous *r, RankPart mine, RankPart *parts) {
    const double until = device_clock() + r->seconds;
    const uint64_t bytes = mine.bytes;
    Status status = OK;
    for (int rank = 1; rank < r->size && r->rank == 0 && !status; rank++)
        status = take_part(r, rank, &parts[rank]);
    if (r->rank > 0 && !(wire_send(r->talks[0], &bytes, sizeof bytes, until) &&
                         wire_send(r->talks[0], mine.data, mine.bytes, until)))
        status = gone(r, 0);
    return status;
}

/* ---- clocks ---- */

/* Of many round trips the fastest says most: the answer was given at some moment of it. */
static Status ask_clock(const Rendezvous *r, int rank, RankClock *clock) {
    double least = INFINITY;
    for (int i = 0; i < TRIPS; i++) {
        const double until = device_clock() + r->seconds, sent = device_clock();
        double there;
        if (!wire_send(r->talks[rank], "?", 1, until) ||
            !wire_receive(r->talks[rank], &there, sizeof there, until))
            return gone(r, rank);
        const double back = device_clock();
        if (back - sent >= least) continue;
        least = back - sent;
        *clock = (RankClock){.ahead = there - (sent + back) / 2, .within = least / 2};
    }
    return OK;
}

static Status tell_clock(const Rendezvous *r) {
    for (int i = 0; i < TRIPS; i++) {
        const double until = device_clock() + r->seconds;
        char question;
        if (!wire_receive(r->talks[0], &question, 1, until)) return gone(r, 0);
        const double now = device_clock();
        if (!wire_send(r->talks[0], &now, sizeof now, until)) return gone(r, 0);
    }
    return OK;
}

Status rendezvous_clocks(Rendezvous *r, RankClock *clocks) {
    if (r->rank > 0) return tell_clock(r);
    Status status = OK;
    clocks[0] = (RankClock){0};
    for (int rank = 1; rank < r->size && !status; rank++) status = ask_clock(r, rank, &clocks[rank]);
    return status;
}
