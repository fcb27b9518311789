#define _GNU_SOURCE
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { BEAT_SECONDS = 2, PARTING_SECONDS = 2, BEAT_MS = 100 };

/* ---- state set by the main thread ---- */

void heartbeat_begin(Rendezvous *r, const HeartbeatSetup *watch) {
    Link *l = (Link *)r;
    pthread_mutex_lock(&l->lock);
    l->watch = *watch;
    if (watch->silence <= 0) l->watch.silence = HEARTBEAT_SILENCE;
    pthread_mutex_unlock(&l->lock);
}

static void begin(Rendezvous *r, bool step, const char *what) {
    Link *l = (Link *)r;
    if (!r) return;
    pthread_mutex_lock(&l->lock);
    l->noted = device_clock();
    if (l->step_runs) l->recent[l->steps++ % HEARTBEAT_RECENT] = l->noted - l->began;
    l->step_runs = step;
    l->began = l->noted;
    snprintf(l->now.phase, sizeof l->now.phase, "%s", what);
    l->now.action[0] = 0;
    pthread_mutex_unlock(&l->lock);
}

void heartbeat_step(Rendezvous *r, int64_t step) {
    char what[NOTE_BYTES];
    snprintf(what, sizeof what, "step %lld", (long long)step);
    begin(r, true, what);
}

void heartbeat_other(Rendezvous *r, const char *what) {
    begin(r, false, what);
}

void heartbeat_note(Rendezvous *r, const char *format, ...) {
    Link *l = (Link *)r;
    va_list arguments;
    if (!r) return;
    pthread_mutex_lock(&l->lock);
    va_start(arguments, format);
    vsnprintf(l->now.action, sizeof l->now.action, format, arguments);
    va_end(arguments);
    l->now.calls++;
    l->noted = device_clock();
    pthread_mutex_unlock(&l->lock);
}

/* ---- messages between ranks ---- */

Verdict verdict_of(Status status) {
    Verdict verdict = {.code = (int32_t)status_code(status)};
    snprintf(verdict.reason, sizeof verdict.reason, "%s", status_message(status));
    return verdict;
}

Status verdict_status(Verdict v) {
    const bool known = v.code >= ERROR_INTERNAL && v.code <= ERROR_NONFINITE;
    return fail(known ? (ErrorCode)v.code : ERROR_DEVICE, "%.*s", REASON_BYTES - 1, v.reason);
}

/* This rank as a Peer, as other ranks see it. */
static Other myself(Link *l) {
    pthread_mutex_lock(&l->lock);
    Other me = {.rank = l->base.rank, .heard = device_clock(), .last = l->now};
    me.last.idle = me.heard - l->noted;
    pthread_mutex_unlock(&l->lock);
    return me;
}

static void send_all(Link *l, Kind kind, Status why) {
    Heartbeat beat = myself(l).last;
    beat.kind = kind;
    beat.verdict = verdict_of(why);
    for (Other *o = l->others; o < l->others + l->count; o++)
        if (!o->ended && !o->closed &&
            !wire_send(o->connections[WATCH], &beat, sizeof beat, device_clock() + BEAT_SECONDS))
            (void)shutdown(o->connections[WATCH], SHUT_RDWR); // the message may have been sent in part
}

/* Adopts the verdict, unless there is an earlier one, and wakes the main thread if it waits for another
 * rank. */
static void set_verdict(Link *l, Status verdict) {
    pthread_mutex_lock(&l->lock);
    if (l->verdict)
        status_free(verdict);
    else
        l->verdict = verdict;
    pthread_cond_broadcast(&l->news);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->count; i++) (void)shutdown(l->others[i].connections[EXCHANGE], SHUT_RDWR);
}

/* Ends the run because of a rank. */
static void give_up(Link *l, const Other *o, const char *why) {
    const Heartbeat *last = &o->last;
    char action[2 * NOTE_BYTES + 64] = "none yet", collective[40] = "";
    if (last->calls) snprintf(collective, sizeof collective, " (collective %lld)", (long long)last->calls);
    if (*last->phase || *last->action)
        snprintf(action, sizeof action, "%s%s%s%s, %.1f s ago", last->phase,
                 *last->phase && *last->action ? ": " : "", last->action, collective,
                 last->idle + device_clock() - o->heard);
    pthread_mutex_lock(&l->lock); // the main thread may be receiving the hosts' names
    Status verdict = fail(ERROR_DEVICE, "rank %d on %s %s; its last action: %s", o->rank,
                          l->base.hosts[o->rank], why, action);
    pthread_mutex_unlock(&l->lock);
    set_verdict(l, verdict);
}

/* Called after `limit` seconds: the rank that has called the fewest collectives is blamed. */
static void blame(Link *l, double limit) {
    const Other me = myself(l), *least = &me;
    int64_t most = me.last.calls;
    char why[RANK_HOST + 96];
    for (const Other *o = l->others; o < l->others + l->count; o++) {
        if (o->ended) continue;
        if (o->last.calls > most) most = o->last.calls;
        if (o->last.calls < least->last.calls) least = o;
    }
    snprintf(why, sizeof why, "%s (rank %d on %s has waited longer than %.1f s)",
             least->last.calls < most ? "keeps the others waiting" : "waits as all ranks do", me.rank,
             l->base.hosts[me.rank], limit);
    give_up(l, least, why);
}

/* Processes one heartbeat. */
static void hear(Link *l, Other *o) {
    Heartbeat *beat = &o->last, heard;
    o->closed = !wire_receive(o->connections[WATCH], &heard, sizeof heard, device_clock() + BEAT_SECONDS);
    if (o->closed && !o->ended) give_up(l, o, "is gone");
    if (o->closed) return;
    o->heard = device_clock();
    *beat = heard;
    beat->verdict.reason[REASON_BYTES - 1] = beat->phase[NOTE_BYTES - 1] = beat->action[NOTE_BYTES - 1] = 0;
    if (beat->kind == BEAT_END) {
        pthread_mutex_lock(&l->lock);
        o->ended = true;
        pthread_cond_broadcast(&l->news); // the main thread may be waiting for this rank
        pthread_mutex_unlock(&l->lock);
        (void)shutdown(o->connections[WATCH], SHUT_WR); // ends the other rank's receive
    } else if (beat->kind == BEAT_VERDICT) {
        l->reported = o->rank == 0;
        set_verdict(l, verdict_status(beat->verdict));
    }
}

/* ---- the clock ---- */

double heartbeat_limit(const double *recent, int64_t steps) {
    double slowest = 0;
    if (steps < 2) return HEARTBEAT_START;
    for (int i = 0; i < HEARTBEAT_RECENT && i < steps; i++)
        if (recent[i] > slowest) slowest = recent[i];
    return 3 * slowest > HEARTBEAT_LEAST ? 3 * slowest : HEARTBEAT_LEAST;
}

static void look_at_clock(Link *l) {
    const double now = device_clock();
    pthread_mutex_lock(&l->lock);
    const double timeout = l->watch.timeout, silence = l->watch.silence;
    double limit = timeout > 0 ? timeout : heartbeat_limit(l->recent, l->steps);
    if (!l->step_runs && limit < HEARTBEAT_OTHER) limit = HEARTBEAT_OTHER;
    const bool late = now - l->began > limit;
    pthread_mutex_unlock(&l->lock);
    if (timeout < 0) return;
    for (Other *o = l->others; o < l->others + l->count; o++) {
        if (o->ended || o->closed || now - o->heard <= silence) continue;
        give_up(l, o, "has not been heard of");
        o->closed = true; // do not wait for the silent rank
    }
    /* Only rank 0 can tell which rank is late. */
    if (late && (l->base.rank == 0 || l->others->ended)) blame(l, limit);
}

void heartbeat_check(Link *l) {
    for (Other *o = l->others; o < l->others + l->count; o++)
        while (!o->closed && wire_ready(o->connections[WATCH])) hear(l, o);
    look_at_clock(l);
}

/* ---- the thread ---- */

/* Reads everything first: closing a socket with unread data would discard the last message sent. */
void heartbeat_leave(Link *l, Status why) {
    const double until = device_clock() + PARTING_SECONDS;
    Heartbeat unread;
    send_all(l, why ? BEAT_VERDICT : BEAT_END, why);
    for (int i = 0; i < l->count; i++) (void)shutdown(l->others[i].connections[WATCH], SHUT_WR);
    for (const Other *o = l->others; o < l->others + l->count; o++)
        while (!o->closed && device_clock() < until &&
               wire_receive(o->connections[WATCH], &unread, sizeof unread, until)) {}
}

/* Tells every rank immediately that a rank is gone, because MPI ends the other ranks soon after the first has
 * ended. */
static void wait_for_heartbeats(const Link *l) {
    OWNED struct pollfd *waits = memory_array((size_t)l->count, sizeof *waits);
    for (int i = 0; i < l->count; i++)
        waits[i] = (struct pollfd){.fd = l->others[i].closed ? -1 : l->others[i].connections[WATCH],
                                   .events = POLLIN};
    (void)poll(waits, (nfds_t)l->count, BEAT_MS);
}

static void *run(void *argument) {
    Link *l = argument;
    double said = 0;
    while (!l->ending && !l->verdict) {
        wait_for_heartbeats(l);
        heartbeat_check(l);
        /* Until all ranks have connected, rank 0 reads nothing: the others send nothing before that. */
        if (device_clock() - said < BEAT_MS * 1e-3 || (l->base.rank && !l->others->last.kind)) continue;
        said = device_clock();
        send_all(l, BEAT_ALIVE, OK);
    }
    if (!l->verdict) return NULL;
    heartbeat_leave(l, l->verdict);
    if (!l->ending && l->watch.lost)
        l->watch.lost(l->watch.user, fail(status_code(l->verdict), "%s", status_message(l->verdict)));
    return NULL;
}

/* Starts the thread with all signals blocked: they are the main thread's. */
Status heartbeat_open(Link *l) {
    sigset_t all, before;
    l->began = l->noted = device_clock();
    for (int i = 0; i < l->count; i++) l->others[i].heard = l->began;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->threaded = pthread_create(&l->thread, NULL, run, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l->threaded ? OK : fail(ERROR_MEMORY, "no thread can be started to watch the other ranks");
}

void heartbeat_close(Link *l, Status why) {
    char text[REASON_BYTES];
    if (!l->threaded) return;
    l->ending = true;
    (void)pthread_join(l->thread, NULL);
    if (l->verdict) return; // the last word has been sent
    const Other me = myself(l);
    snprintf(text, sizeof text, "has failed: %s", status_message(why));
    if (why) give_up(l, &me, text);
    heartbeat_leave(l, l->verdict);
}
