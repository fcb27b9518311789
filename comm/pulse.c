#define _GNU_SOURCE
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "kernels/device/device.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { SAY_SECONDS = 2, PARTING_SECONDS = 2, BEAT_MS = 100 };

/* ---- what the main thread says ---- */

void pulse_begin(Rendezvous *r, const PulseSetup *watch) {
    Link *l = (Link *)r;
    pthread_mutex_lock(&l->lock);
    l->watch = *watch;
    if (watch->silence <= 0) l->watch.silence = PULSE_SILENCE;
    pthread_mutex_unlock(&l->lock);
}

static void begin(Rendezvous *r, bool step, const char *what) {
    Link *l = (Link *)r;
    if (!r) return;
    pthread_mutex_lock(&l->lock);
    l->noted = device_clock();
    if (l->step_runs) l->recent[l->steps++ % PULSE_RECENT] = l->noted - l->began;
    l->step_runs = step;
    l->began = l->noted;
    snprintf(l->now.phase, sizeof l->now.phase, "%s", what);
    l->now.action[0] = 0;
    pthread_mutex_unlock(&l->lock);
}

void pulse_step(Rendezvous *r, int64_t step) {
    char what[NOTE_BYTES];
    snprintf(what, sizeof what, "step %lld", (long long)step);
    begin(r, true, what);
}

void pulse_other(Rendezvous *r, const char *what) {
    begin(r, false, what);
}

void pulse_note(Rendezvous *r, const char *format, ...) {
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

/* ---- what the ranks say to each other ---- */

static Beat make_beat(Link *l, Status why) {
    pthread_mutex_lock(&l->lock);
    Beat beat = l->now;
    beat.idle = device_clock() - l->noted;
    pthread_mutex_unlock(&l->lock);
    beat.why = verdict_of(why);
    return beat;
}

static void say_all(Link *l, Kind kind, Status why) {
    const Beat beat = make_beat(l, why);
    for (Channel *c = l->others; c < l->others + l->count; c++)
        if (!c->ended && !c->closed) // of one that cannot be reached its own connection tells
            (void)channel_say(c, &l->head, kind, &beat, sizeof beat, device_clock() + SAY_SECONDS);
}

/* Takes it over. The first one counts. */
static void set_verdict(Link *l, Status verdict) {
    pthread_mutex_lock(&l->lock);
    if (l->verdict)
        status_free(verdict);
    else
        l->verdict = verdict;
    pthread_cond_broadcast(&l->news);
    pthread_mutex_unlock(&l->lock);
}

/* The run is given up because of a rank that did `last`, `since` seconds ago. */
static void give_up(Link *l, int rank, const char *why, const Beat *last, double since) {
    char action[2 * NOTE_BYTES + 64] = "none yet", collective[40] = "";
    if (last->calls) snprintf(collective, sizeof collective, " (collective %lld)", (long long)last->calls);
    if (*last->phase || *last->action)
        snprintf(action, sizeof action, "%s%s%s%s, %.1f s ago", last->phase,
                 *last->phase && *last->action ? ": " : "", last->action, collective, last->idle + since);
    pthread_mutex_lock(&l->lock); // the hosts' names may just come in
    Status verdict =
        fail(ERROR_DEVICE, "rank %d on %s %s; its last action: %s", rank, l->base.hosts[rank], why, action);
    pthread_mutex_unlock(&l->lock);
    set_verdict(l, verdict);
}

/* Who keeps the others waiting, after `limit` seconds: the rank that has asked for the fewest collectives. */
static void blame(Link *l, double limit) {
    const Beat mine = make_beat(l, OK), *least = &mine;
    int rank = l->base.rank;
    int64_t most = mine.calls;
    double since = 0;
    char why[RANK_HOST + 96];
    for (const Channel *c = l->others; c < l->others + l->count; c++) {
        if (c->ended) continue;
        if (c->last.calls > most) most = c->last.calls;
        if (c->last.calls >= least->calls) continue;
        least = &c->last;
        rank = c->rank;
        since = device_clock() - c->heard;
    }
    snprintf(why, sizeof why, "%s (rank %d on %s has waited longer than %.1f s)",
             least->calls < most ? "keeps the others waiting" : "waits as all ranks do", l->base.rank,
             l->base.hosts[l->base.rank], limit);
    give_up(l, rank, why, least, since);
}

/* What the main thread waits for. */
static void keep(Link *l, Channel *c) {
    pthread_mutex_lock(&l->lock);
    const bool fits = c->count + c->head.bytes <= UNTAKEN_MOST;
    if (fits && c->head.bytes > 0) {
        c->data = memory_grow(c->data, &c->room, c->count + c->head.bytes, 1);
        memcpy(c->data + c->count, c->body, (size_t)c->head.bytes);
        c->count += c->head.bytes;
    }
    pthread_cond_broadcast(&l->news);
    pthread_mutex_unlock(&l->lock);
    if (fits) return;
    give_up(l, c->rank, "says more than anybody has asked for", &c->last, 0);
    c->closed = true;
}

static void take_beat(Link *l, Channel *c) {
    char why[REASON_BYTES + 32];
    const Beat *beat = channel_beat(c);
    if (c->head.kind == SAYS_END && beat->why.code) {
        snprintf(why, sizeof why, "has failed: %s", beat->why.reason);
        give_up(l, c->rank, why, beat, 0);
    } else if (c->head.kind == SAYS_END) { // nothing more goes there, so that it sees the connection end
        pthread_mutex_lock(&l->lock);
        c->ended = true;
        pthread_cond_broadcast(&l->news); // the main thread may wait for it
        pthread_mutex_unlock(&l->lock);
        (void)shutdown(c->connection, SHUT_WR);
    } else if (c->head.kind == SAYS_VERDICT && c->rank == 0) {
        l->told = true;
        set_verdict(l, verdict_status(beat->why));
    }
}

static void hear(Link *l, Channel *c) {
    while (channel_hear(c, &l->head)) {
        if (c->head.kind == SAYS_DATA)
            keep(l, c);
        else if (c->head.bytes == sizeof(Beat))
            take_beat(l, c);
    }
    if (c->closed && !c->ended) give_up(l, c->rank, "is gone", &c->last, device_clock() - c->heard);
}

/* ---- the clock ---- */

double pulse_limit(const double *recent, int64_t steps) {
    double slowest = 0;
    if (steps < 2) return PULSE_START;
    for (int i = 0; i < PULSE_RECENT && i < steps; i++)
        if (recent[i] > slowest) slowest = recent[i];
    return 3 * slowest > PULSE_LEAST ? 3 * slowest : PULSE_LEAST;
}

static void look_at_clock(Link *l) {
    const double now = device_clock();
    pthread_mutex_lock(&l->lock);
    const double timeout = l->watch.timeout, silence = l->watch.silence;
    double limit = timeout > 0 ? timeout : pulse_limit(l->recent, l->steps);
    if (!l->step_runs && limit < PULSE_OTHER) limit = PULSE_OTHER;
    const bool late = now - l->began > limit;
    pthread_mutex_unlock(&l->lock);
    if (timeout < 0) return;
    for (Channel *c = l->others; c < l->others + l->count; c++) {
        if (c->ended || c->closed || now - c->heard <= silence) continue;
        give_up(l, c->rank, "has not been heard of", &c->last, now - c->heard);
        c->closed = true; // nobody waits for its answer
    }
    /* Rank 0 knows who is behind. */
    if (late && (l->base.rank == 0 || l->others->ended)) blame(l, limit);
}

void pulse_look(Link *l) {
    for (int i = 0; i < l->count; i++) hear(l, &l->others[i]);
    look_at_clock(l);
}

/* ---- the thread ---- */

/* Says the last word, and waits until the others have read it: what a closed connection had not read would
 * take away what it had sent. */
static void part(Link *l, Kind kind, Status why) {
    const double until = device_clock() + PARTING_SECONDS;
    say_all(l, kind, why);
    for (int i = 0; i < l->count; i++) (void)shutdown(l->others[i].connection, SHUT_WR);
    for (int i = 0; i < l->count; i++)
        while (!l->others[i].closed && channel_wait(&l->others[i], &l->head, until)) {}
}

static void *run(void *argument) {
    Link *l = argument;
    double said = 0;
    struct pollfd *waits = memory_array((size_t)l->count, sizeof *waits);
    while (!l->ending && !l->verdict) {
        for (int i = 0; i < l->count; i++)
            waits[i] =
                (struct pollfd){.fd = l->others[i].closed ? -1 : l->others[i].connection, .events = POLLIN};
        (void)poll(waits, (nfds_t)l->count, BEAT_MS);
        pulse_look(l);
        if (device_clock() - said < BEAT_MS * 1e-3) continue;
        said = device_clock();
        say_all(l, SAYS_ALIVE, OK);
    }
    memory_free(waits);
    if (!l->verdict) return NULL;
    part(l, l->base.rank == 0 ? SAYS_VERDICT : SAYS_END, l->base.rank == 0 ? l->verdict : OK);
    if (!l->ending && l->watch.lost)
        l->watch.lost(l->watch.user, fail(status_code(l->verdict), "%s", status_message(l->verdict)));
    return NULL;
}

/* Signals are the main thread's. */
Status pulse_open(Link *l) {
    sigset_t all, before;
    l->began = l->noted = device_clock();
    for (int i = 0; i < l->count; i++) l->others[i].heard = l->began;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->threaded = pthread_create(&l->thread, NULL, run, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return l->threaded ? OK : fail(ERROR_MEMORY, "no thread can be started to watch the other ranks");
}

void pulse_close(Link *l, Status why) {
    if (!l->threaded) return;
    l->ending = true;
    (void)pthread_join(l->thread, NULL);
    if (!l->verdict) part(l, SAYS_END, why);
}
