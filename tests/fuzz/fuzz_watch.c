/* Fuzzes messages after the rendezvous: to rank 0 or, if the first byte is odd, from rank 0 to another rank.
 * If that byte's second bit is set, a connection stays open after its last byte, so that the watch finds its
 * rank silent or, with the third bit, which shortens a step's deadline, late. The other bytes are in the
 * format of wires.h. The data received then passes through the exchanges of ranks: texts must be terminated,
 * codes valid, and no exchange may read more than was received. */
#include "base/memory.h"
#include "comm/rendezvous_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wires.h"

#include <string.h>

enum { SIZE = 3 };

/* Accepts an error that other ranks may have caused. */
static bool fails(Status status) {
    const bool failed = status != OK;
    must(status_code(status) <= ERROR_NONFINITE && (!failed || status_code(status) >= ERROR_INTERNAL));
    if (failed) must(!strpbrk(status_message(status), "\n\r\033"));
    status_free(status);
    return failed;
}

/* Runs the watch until no connection has more data. */
static void watch(Link *l, double timeout) {
    Rendezvous *r = &l->base;
    bool more = true;
    heartbeat_begin(r, &(HeartbeatSetup){.timeout = timeout, .silence = 20});
    heartbeat_step(r, 1);
    heartbeat_note(r, "all-reduce of %d fp32", 64);
    while (more && !l->verdict) {
        heartbeat_check(l);
        more = false;
        for (int i = 0; i < l->count; i++) more = more || (!l->others[i].closed && !l->others[i].ended);
    }
    heartbeat_other(r, "the end");
}

static void exchange(Rendezvous *r) {
    int64_t mine = 1, all[SIZE];
    RankPart parts[SIZE] = {{0}};
    RankClock clocks[SIZE];
    if (fails(rendezvous_gather(r, &mine, sizeof mine, all)) || fails(rendezvous_agree(r, OK))) return;
    (void)fails(rendezvous_collect(r, (RankPart){&mine, sizeof mine}, parts));
    for (int rank = 1; rank < SIZE; rank++) {
        if (parts[rank].data) must(parts[rank].bytes <= RANK_PART_MOST);
        memory_free(parts[rank].data);
    }
    (void)fails(rendezvous_clocks(r, clocks));
    (void)fails(rendezvous_compare(r, "a=1\nb=2\n"));
}

static void read_watch(const uint8_t *data, size_t size) {
    char hosts[SIZE][RANK_HOST] = {"one", "two", "three"};
    if (!size) return;
    const int rank = data[0] & 1;
    Other others[SIZE - 1];
    Link l = {.base = {.rank = rank, .size = SIZE, .hosts = hosts},
              .count = rank ? 1 : SIZE - 1,
              .others = others,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .news = PTHREAD_COND_INITIALIZER};
    for (int i = 0; i < SIZE - 1; i++)
        others[i] = (Other){.rank = rank ? 0 : i + 1,
                            .connections = {[WATCH] = WIRE + i, [EXCHANGE] = WIRE + l.count + i}};
    wires_share(data + 1, size - 1, l.count * CONNECTIONS, data[0] & 2);
    watch(&l, data[0] & 4 ? 10 : 0);
    exchange(&l.base);
    if (l.verdict) { // the thread informs the others, and sleeps only without anything to send
        fails(heartbeat_open(&l));
        heartbeat_close(&l, OK);
    } else {
        heartbeat_leave(&l, OK);
    }
    fails(l.verdict);
}

FUZZ(watch, read_watch, NULL)
