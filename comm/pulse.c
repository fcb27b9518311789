#define _GNU_SOURCE
#include "comm/pulse.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REASON = 400, LOOK_MS = 200, RECENT = 8, SEND_SECONDS = 2, PARTING_SECONDS = 2 };
static const double BEAT_SECONDS = 1;   // between beats
static const double NEWS_SECONDS = 0.1; // between those that tell of something new

typedef enum { BEAT_ALIVE, BEAT_END, BEAT_FAILED, BEAT_LATE, BEAT_VERDICT } BeatKind;

/* What goes over the connections, in both directions. */
typedef struct {
    int32_t kind;
    double idle; // seconds since the entry's last note
    BoardEntry entry;
    char reason[REASON]; // of all but ALIVE and END
} Beat;

/* Another rank. */
typedef struct {
    int rank, connection;
    bool ended; // it has said so
    bool closed;
    double heard;
    size_t have; // bytes of `coming`
    Beat coming, last;
} Peer;

struct Pulse {
    PulseSetup setup;
    int count; // peers: on rank 0 all others, elsewhere rank 0
    Peer *peers;
    struct pollfd *waits; // (count + 1)
    int wake;             // an eventfd that the main thread writes to when it ends
    pthread_t thread;
    bool threaded;
    double sent, told;    // when the last beats were, and of which note they told
    char verdict[REASON]; // why the run is given up; "" while it is not

    pthread_mutex_t lock; // of what follows, which the main thread sets
    bool ending, step_runs;
    Beat farewell;
    double began, recent[RECENT]; // when this part of the run began; seconds of the last steps
    int64_t steps;
};

/* ---- what the main thread says ---- */

static void begin(Pulse *p, bool step) {
    double now = device_clock();
    pthread_mutex_lock(&p->lock);
    if (p->step_runs) p->recent[p->steps++ % RECENT] = now - p->began;
    p->step_runs = step;
    p->began = now;
    pthread_mutex_unlock(&p->lock);
}

void pulse_step(Pulse *p, int64_t step) {
    if (!p) return;
    begin(p, true);
    board_phase(p->setup.board, "step %lld", (long long)step);
}

void pulse_other(Pulse *p, const char *what) {
    if (!p) return;
    begin(p, false);
    board_phase(p->setup.board, "%s", what);
}

/* ---- beats ---- */

static Beat make_beat(const Pulse *p, BeatKind kind, const char *reason) {
    Beat beat = {.kind = kind, .entry = board_mine(p->setup.board)};
    beat.idle = device_clock() - beat.entry.since;
    snprintf(beat.reason, sizeof beat.reason, "%s", reason);
    return beat;
}

static void send_all(Pulse *p, const Beat *beat) {
    for (int i = 0; i < p->count; i++) // of one that cannot be reached its own connection tells
        if (!p->peers[i].ended && !p->peers[i].closed)
            (void)wire_send(p->peers[i].connection, beat, sizeof *beat, device_clock() + SEND_SECONDS);
    p->sent = device_clock();
    p->told = beat->entry.since;
}

static const char *host_of(const Pulse *p, int rank) {
    return p->setup.rendezvous->hosts[rank];
}

/* The run is given up because of a rank. The first reason counts. */
static void give_up(Pulse *p, int rank, const char *why, const Beat *last, double since) {
    char action[BOARD_TEXT];
    if (*p->verdict) return;
    board_text(&last->entry, last->idle + since, action);
    snprintf(p->verdict, sizeof p->verdict, "rank %d on %s %s; its last action: %s", rank, host_of(p, rank),
             why, action);
}

/* Who keeps the others waiting: the rank that has asked for the fewest collectives. `why` says which rank has
 * found that it waits too long. */
static void blame(Pulse *p, const char *why) {
    const int self = p->setup.rendezvous->rank;
    const Beat mine = make_beat(p, BEAT_ALIVE, "");
    const double now = device_clock();
    const Peer *behind = NULL;
    int64_t least = mine.entry.calls, most = least;
    char text[REASON];
    for (int i = 0; i < p->count; i++) {
        const Peer *peer = &p->peers[i];
        if (peer->ended) continue;
        if (peer->last.entry.calls < least) behind = peer;
        if (peer->last.entry.calls < least) least = peer->last.entry.calls;
        if (peer->last.entry.calls > most) most = peer->last.entry.calls;
    }
    snprintf(text, sizeof text, "%s (%s)",
             least < most ? "keeps the others waiting" : "waits as all ranks do", why);
    if (behind)
        give_up(p, behind->rank, text, &behind->last, now - behind->heard);
    else
        give_up(p, self, text, &mine, 0);
}

/* A whole beat has come in. */
static void take_beat(Pulse *p, Peer *peer) {
    const Beat *beat = &peer->last;
    char why[REASON + 32];
    switch (beat->kind) {
    case BEAT_END: // nothing more goes there, so that it sees the connection end
        peer->ended = true;
        (void)shutdown(peer->connection, SHUT_WR);
        break;
    case BEAT_FAILED:
        snprintf(why, sizeof why, "has failed: %s", beat->reason);
        give_up(p, peer->rank, why, beat, 0);
        break;
    case BEAT_LATE: blame(p, beat->reason); break;
    case BEAT_VERDICT: snprintf(p->verdict, sizeof p->verdict, "%s", beat->reason); break;
    default: break;
    }
}

static void hear(Pulse *p, Peer *peer) {
    while (!peer->closed) {
        long count =
            wire_take(peer->connection, (char *)&peer->coming + peer->have, sizeof peer->coming - peer->have);
        if (count == 0) return;
        if (count < 0) {
            peer->closed = true;
            if (!peer->ended) give_up(p, peer->rank, "is gone", &peer->last, device_clock() - peer->heard);
            return;
        }
        peer->have += (size_t)count;
        if (peer->have < sizeof peer->coming) continue;
        peer->have = 0;
        peer->heard = device_clock();
        peer->last = peer->coming;
        peer->last.reason[REASON - 1] = peer->last.entry.phase[BOARD_PHASE - 1] = 0;
        peer->last.entry.action[BOARD_ACTION - 1] = 0;
        take_beat(p, peer);
    }
}

/* ---- the clock ---- */

/* Seconds that what runs may take; the lock is held. */
static double allowed(const Pulse *p) {
    double timeout = p->setup.timeout, slowest = 0;
    if (!p->step_runs) return timeout > PULSE_OTHER ? timeout : PULSE_OTHER;
    if (timeout > 0) return timeout;
    if (p->steps < 2) return PULSE_START;
    for (int i = 0; i < RECENT && i < p->steps; i++)
        if (p->recent[i] > slowest) slowest = p->recent[i];
    return 3 * slowest > PULSE_LEAST ? 3 * slowest : PULSE_LEAST;
}

static void look_at_clock(Pulse *p) {
    const Rendezvous *r = p->setup.rendezvous;
    const double now = device_clock();
    char why[160];
    if (p->setup.timeout < 0) return;
    pthread_mutex_lock(&p->lock);
    double limit = allowed(p);
    bool late = now - p->began > limit;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->count; i++) {
        Peer *peer = &p->peers[i];
        if (peer->ended || peer->closed || now - peer->heard <= p->setup.silence) continue;
        give_up(p, peer->rank, "has not been heard of", &peer->last, now - peer->heard);
        peer->closed = true; // nobody waits for its answer
    }
    if (!late || *p->verdict) return;
    snprintf(why, sizeof why, "rank %d on %s has waited longer than %.1f s", r->rank, r->hosts[r->rank],
             limit);
    if (r->rank == 0 || p->peers[0].ended) {
        blame(p, why);
    } else if (now - p->sent >= BEAT_SECONDS) { // rank 0 knows who is behind
        Beat beat = make_beat(p, BEAT_LATE, why);
        send_all(p, &beat);
    }
}

/* ---- the thread ---- */

/* Sends the last beat, and waits until the others have read it: what a closed connection had not read would
 * take away what it had sent. */
static void part(Pulse *p, const Beat *last) {
    send_all(p, last);
    for (int i = 0; i < p->count; i++) (void)shutdown(p->peers[i].connection, SHUT_WR);
    const double until = device_clock() + PARTING_SECONDS;
    for (int i = 0; i < p->count; i++) {
        char rest[1024];
        struct pollfd waits = {.fd = p->peers[i].connection, .events = POLLIN};
        while (!p->peers[i].closed && device_clock() < until) {
            (void)poll(&waits, 1, LOOK_MS);
            p->peers[i].closed = wire_take(p->peers[i].connection, rest, sizeof rest) < 0;
        }
    }
}

/* Whether the main thread has said that it ends, and then how. */
static bool is_ending(Pulse *p, Beat *farewell) {
    pthread_mutex_lock(&p->lock);
    bool ending = p->ending;
    *farewell = p->farewell;
    pthread_mutex_unlock(&p->lock);
    return ending;
}

static void *run(void *argument) {
    Pulse *p = argument;
    Beat last;
    while (!is_ending(p, &last) && !*p->verdict) {
        for (int i = 0; i < p->count; i++) p->waits[i].fd = p->peers[i].closed ? -1 : p->peers[i].connection;
        (void)poll(p->waits, (nfds_t)p->count + 1, LOOK_MS);
        for (int i = 0; i < p->count; i++) hear(p, &p->peers[i]);
        look_at_clock(p);
        Beat beat = make_beat(p, BEAT_ALIVE, "");
        double since = device_clock() - p->sent;
        if (since >= BEAT_SECONDS || (since >= NEWS_SECONDS && beat.entry.since > p->told))
            send_all(p, &beat);
    }
    bool given_up = *p->verdict;
    if (given_up) last = make_beat(p, p->setup.rendezvous->rank == 0 ? BEAT_VERDICT : BEAT_END, p->verdict);
    part(p, &last);
    if (given_up && !is_ending(p, &last)) p->setup.lost(p->setup.user, fail(ERROR_DEVICE, "%s", p->verdict));
    return NULL;
}

/* Signals are the main thread's. */
static Status start_thread(Pulse *p) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->threaded = pthread_create(&p->thread, NULL, run, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->threaded ? OK : fail(ERROR_MEMORY, "no thread can be started to watch the other ranks");
}

static Status meet_peers(Pulse *p) {
    const Rendezvous *r = p->setup.rendezvous;
    p->count = r->rank == 0 ? r->size - 1 : 1;
    p->peers = memory_array((size_t)p->count, sizeof *p->peers);
    p->waits = memory_array((size_t)p->count + 1, sizeof *p->waits);
    p->wake = eventfd(0, EFD_CLOEXEC);
    if (p->wake < 0) return fail(ERROR_MEMORY, "no event can be made to watch %d ranks", p->count);
    for (int i = 0; i < p->count; i++) {
        int rank = r->rank == 0 ? i + 1 : 0;
        p->peers[i] = (Peer){.rank = rank, .connection = r->pulses[rank], .heard = device_clock()};
        p->waits[i].events = POLLIN;
    }
    p->waits[p->count] = (struct pollfd){.fd = p->wake, .events = POLLIN};
    return OK;
}

Status pulse_open(const PulseSetup *setup, Pulse **pulse) {
    Pulse *p = memory_allocate(sizeof *p);
    *p = (Pulse){.setup = *setup, .wake = -1, .began = device_clock(), .lock = PTHREAD_MUTEX_INITIALIZER};
    if (setup->silence <= 0) p->setup.silence = PULSE_SILENCE;
    Status status = OK;
    if (setup->rendezvous->size > 1) {
        status = meet_peers(p);
        if (!status) status = start_thread(p);
    }
    if (status)
        pulse_close(p, status);
    else
        *pulse = p;
    return status;
}

void pulse_close(Pulse *p, Status why) {
    if (!p) return;
    if (p->threaded) {
        pthread_mutex_lock(&p->lock);
        p->ending = true;
        p->farewell = make_beat(p, why ? BEAT_FAILED : BEAT_END, why ? status_message(why) : "");
        pthread_mutex_unlock(&p->lock);
        (void)eventfd_write(p->wake, 1);
        (void)pthread_join(p->thread, NULL);
    }
    if (p->wake >= 0) close(p->wake);
    memory_free(p->peers);
    memory_free(p->waits);
    memory_free(p);
}
