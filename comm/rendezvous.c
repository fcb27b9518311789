#define _GNU_SOURCE
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TRIPS = 64, PATIENCE_SECONDS = 10, ANSWER_SECONDS = 3, PAUSE_MS = 100 };

/* ---- meeting rank 0 ---- */

/* Says hello at one port. ERROR_DEVICE where another may do, or a later time. */
static Status say_hello(Link *l, const char *host, int port, const Hello *hello, double until) {
    const double soon = device_clock() + ANSWER_SECONDS, heard = soon < until ? soon : until;
    Channel *c = l->others;
    TRY(wire_connect(host, port, heard, &c->connection));
    Status status = OK;
    const bool answered = channel_say(c, &l->head, SAYS_HELLO, hello, sizeof *hello, heard) &&
                          channel_wait(c, &l->head, heard) && c->head.bytes == sizeof(Beat);
    if (c->other_run) {
        status = fail(ERROR_DEVICE, "what answers there belongs to another run");
    } else if (!answered) {
        status = fail(ERROR_DEVICE, "what listens there does not answer as a rank of this version does");
    } else if (c->head.kind == SAYS_VERDICT) {
        l->told = true;
        status = verdict_status(channel_beat(c)->why);
    }
    if (status) channel_close(c);
    return status;
}

/* Tries the ports in turn, again and again. Of several errors the first port's is told. */
static Status join(Link *l, const Identity *identity, const Hello *mine, double seconds) {
    const double until = device_clock() + seconds;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    Status first = OK;
    do {
        status_free(first);
        first = OK;
        for (int i = 0; i < RENDEZVOUS_PORTS; i++) {
            Status status = say_hello(l, identity->host, identity->port + i, mine, until);
            if (status_code(status) != ERROR_DEVICE || l->told) {
                status_free(first);
                return status;
            }
            if (i == 0)
                first = status;
            else
                status_free(status);
        }
        (void)nanosleep(&pause, NULL);
    } while (device_clock() < until);
    return fail_at(first, "rank %d on %s has found no rank 0 of this run on %s for %.0f s: port %d",
                   l->base.rank, mine->host, identity->host, seconds, identity->port);
}

/* ---- opening and closing ---- */

static Status say_who(const Identity *identity, const char *facts, Hello *hello) {
    *hello = (Hello){.rank = identity->rank, .size = identity->size, .process = (int32_t)getpid()};
    if (gethostname(hello->host, sizeof hello->host - 1) != 0) snprintf(hello->host, sizeof hello->host, "?");
    if (strlen(facts) >= sizeof hello->facts)
        return fail(ERROR_INTERNAL, "the ranks' facts are longer than %d bytes", FACTS_BYTES - 1);
    memcpy(hello->facts, facts, strlen(facts));
    return OK;
}

/* Rank 0 holds a socket for each rank, more than many systems allow a process at first. */
static void allow_files(int size) {
    struct rlimit limit;
    const rlim_t needed = 2 * (rlim_t)size + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); // opening them says what was wrong
}

static Status meet(Link *l, Identity *identity, const Hello *mine, double seconds) {
    Rendezvous *r = &l->base;
    memcpy(r->hosts[r->rank], mine->host, RANK_HOST);
    if (r->size == 1) return OK;
    if (identity->mpi) TRY(mpi_meet(identity, &l->mpi));
    l->head.token = identity->token;
    snprintf(r->hosts[0], RANK_HOST, "%s", r->rank ? identity->host : mine->host);
    TRY((r->rank == 0 ? meeting_host : join)(l, identity, mine, seconds));
    TRY(pulse_open(l));
    TRY(rendezvous_gather(r, mine->host, RANK_HOST, r->hosts));
    for (int rank = 0; rank < r->size; rank++)
        r->hosts[rank][RANK_HOST - 1] = 0; // another may not have ended it
    return OK;
}

Status rendezvous_open(const Identity *identity, const char *facts, double seconds, bool *told,
                       Rendezvous **rendezvous) {
    Link *l = memory_allocate(sizeof *l);
    Rendezvous *r = &l->base;
    Identity own = *identity;
    Hello mine;
    *l = (Link){.base = {.rank = identity->rank, .size = identity->size, .local_rank = identity->local_rank},
                .head.magic = MAGIC,
                .count = identity->rank == 0 ? identity->size - 1 : 1,
                .watch.silence = seconds + PATIENCE_SECONDS, // until all have come
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .news = PTHREAD_COND_INITIALIZER};
    allow_files(l->count);
    r->hosts = memory_array((size_t)r->size, sizeof *r->hosts);
    l->others = memory_array((size_t)l->count + 1, sizeof *l->others);
    for (int i = 0; i < l->count; i++)
        l->others[i] = (Channel){
            .rank = r->rank == 0 ? i + 1 : 0, .connection = -1, .sending = PTHREAD_MUTEX_INITIALIZER};
    Status status = say_who(identity, facts, &mine);
    if (!status) status = meet(l, &own, &mine, seconds);
    if (told) *told = l->told;
    if (status)
        rendezvous_close(r, status);
    else
        *rendezvous = r;
    return status;
}

void rendezvous_close(Rendezvous *r, Status why) {
    Link *l = (Link *)r;
    if (!r) return;
    pulse_close(l, why);
    for (int i = 0; i < l->count; i++) channel_close(&l->others[i]);
    if (l->mpi && !why) l->mpi->close(); // it waits for the others
    status_free(l->verdict);
    memory_free(l->others);
    memory_free(r->hosts);
    memory_free(l);
}

/* ---- exchanges ---- */

/* Waits for so much of what a rank says. Where it says no more, the watch knows why. */
static Status take(Link *l, Channel *c, void *data, size_t bytes) {
    Status status = OK;
    pthread_mutex_lock(&l->lock);
    while ((size_t)c->count < bytes && !l->verdict && !c->ended) pthread_cond_wait(&l->news, &l->lock);
    if ((size_t)c->count >= bytes) {
        memcpy(data, c->data, bytes);
        c->count -= (int64_t)bytes;
        memmove(c->data, c->data + bytes, (size_t)c->count);
    } else if (l->verdict) {
        status = fail(status_code(l->verdict), "%s", status_message(l->verdict));
    } else {
        status = fail(ERROR_DEVICE, "rank %d on %s has ended", c->rank, l->base.hosts[c->rank]);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Piece by piece. */
static Status say(Link *l, Channel *c, const void *data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += BODY_BYTES) {
        const size_t now = bytes - at < BODY_BYTES ? bytes - at : BODY_BYTES;
        const double until = device_clock() + PULSE_OTHER;
        if (!channel_say(c, &l->head, SAYS_DATA, (const char *)data + at, now, until))
            return take(l, c, NULL, SIZE_MAX);
    }
    return OK;
}

Status rendezvous_gather(Rendezvous *r, const void *mine, size_t bytes, void *all) {
    Link *l = (Link *)r;
    const size_t whole = bytes * (size_t)r->size;
    memmove((char *)all + (size_t)r->rank * bytes, mine, bytes);
    if (r->rank > 0) {
        TRY(say(l, l->others, mine, bytes));
        return take(l, l->others, all, whole);
    }
    for (int i = 0; i < l->count; i++)
        TRY(take(l, &l->others[i], (char *)all + (size_t)(i + 1) * bytes, bytes));
    for (int i = 0; i < l->count; i++) TRY(say(l, &l->others[i], all, whole));
    return OK;
}

Status rendezvous_agree(Rendezvous *r, Status mine) {
    OWNED Verdict *all = memory_array((size_t)r->size, sizeof *all);
    const Verdict own = verdict_of(mine);
    Status status = rendezvous_gather(r, &own, sizeof own, all);
    if (mine) status_free(status);
    if (mine || status) return mine ? mine : status;
    for (int rank = 0; rank < r->size; rank++)
        if (all[rank].code) return fail_at(verdict_status(all[rank]), "rank %d on %s", rank, r->hosts[rank]);
    return OK;
}

Status rendezvous_collect(Rendezvous *r, RankPart mine, RankPart *parts) {
    Link *l = (Link *)r;
    if (r->rank > 0) {
        TRY(say(l, l->others, &mine.bytes, sizeof mine.bytes));
        return say(l, l->others, mine.data, mine.bytes);
    }
    for (int i = 0; i < l->count; i++) {
        RankPart *part = &parts[i + 1];
        TRY(take(l, &l->others[i], &part->bytes, sizeof part->bytes));
        if (part->bytes > RANK_PART_MOST)
            return fail(ERROR_DEVICE, "rank %d on %s says that %zu bytes follow, over %d", i + 1,
                        r->hosts[i + 1], part->bytes, RANK_PART_MOST);
        part->data = memory_reserve(part->bytes + 1);
        if (!part->data)
            return fail(ERROR_MEMORY, "out of host memory for %zu bytes of rank %d", part->bytes, i + 1);
        TRY(take(l, &l->others[i], part->data, part->bytes));
    }
    return OK;
}

/* Of many round trips the fastest says most: the answer was given at some moment of it. */
Status rendezvous_clocks(Rendezvous *r, RankClock *clocks) {
    Link *l = (Link *)r;
    for (int i = 0; i < TRIPS * l->count; i++) {
        Channel *c = &l->others[i / TRIPS];
        double sent = device_clock(), there;
        if (r->rank > 0) {
            TRY(take(l, c, &there, sizeof there));
            sent = device_clock();
        }
        TRY(say(l, c, &sent, sizeof sent));
        if (r->rank > 0) continue;
        TRY(take(l, c, &there, sizeof there));
        const double back = device_clock(), within = (back - sent) / 2;
        if (i % TRIPS == 0 || within < clocks[c->rank].within)
            clocks[c->rank] = (RankClock){.ahead = there - (sent + back) / 2, .within = within};
    }
    return OK;
}
