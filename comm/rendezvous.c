#define _GNU_SOURCE
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TRIPS = 64, PATIENCE_SECONDS = 10 };

/* ---- exchanges ---- */

/* Why an exchange with another rank has failed, as the watch thread has determined. */
static Status why_ended(Link *l, const Other *o) {
    pthread_mutex_lock(&l->lock);
    while (!l->verdict && !o->ended) pthread_cond_wait(&l->news, &l->lock);
    Status status = l->verdict
                        ? fail(status_code(l->verdict), "%s", status_message(l->verdict))
                        : fail(ERROR_DEVICE, "rank %d on %s has ended", o->rank, l->base.hosts[o->rank]);
    pthread_mutex_unlock(&l->lock);
    return status;
}

static Status take(Link *l, const Other *o, void *data, size_t bytes) {
    return wire_receive(o->connections[EXCHANGE], data, bytes, INFINITY) ? OK : why_ended(l, o);
}

static Status say(Link *l, const Other *o, const void *data, size_t bytes) {
    return wire_send(o->connections[EXCHANGE], data, bytes, INFINITY) ? OK : why_ended(l, o);
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
            return fail(ERROR_DEVICE, "rank %d on %s announces %zu bytes; at most %d are allowed", i + 1,
                        r->hosts[i + 1], part->bytes, RANK_PART_MOST);
        part->data = memory_reserve(part->bytes + 1);
        if (!part->data)
            return fail(ERROR_MEMORY, "out of host memory for %zu bytes of rank %d", part->bytes, i + 1);
        TRY(take(l, &l->others[i], part->data, part->bytes));
        ((char *)part->data)[part->bytes] = 0;
    }
    return OK;
}

/* The fastest of many round trips bounds the error best, because the answer was given at some moment within
 * it. */
Status rendezvous_clocks(Rendezvous *r, RankClock *clocks) {
    Link *l = (Link *)r;
    for (int i = 0; i < TRIPS * l->count; i++) {
        const Other *o = &l->others[i / TRIPS];
        double sent = device_clock(), theirs;
        if (r->rank > 0) {
            TRY(take(l, o, &theirs, sizeof theirs));
            sent = device_clock();
        }
        TRY(say(l, o, &sent, sizeof sent));
        if (r->rank > 0) continue;
        TRY(take(l, o, &theirs, sizeof theirs));
        const double back = device_clock(), within = (back - sent) / 2;
        if (i % TRIPS == 0 || within < clocks[o->rank].within)
            clocks[o->rank] = (RankClock){.ahead = theirs - (sent + back) / 2, .within = within};
    }
    return OK;
}

/* ---- opening and closing ---- */

/* Rank 0 holds two sockets for each rank, which can exceed a process's default limit of open files. */
static void allow_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); // opening a socket reports the error
}

static Status meet(Link *l, const Identity *identity, double seconds) {
    Rendezvous *r = &l->base;
    Identity own = *identity;
    Hello mine = {.magic = MAGIC, .rank = r->rank, .size = r->size, .process = (int32_t)getpid()};
    if (gethostname(mine.host, sizeof mine.host - 1) != 0) snprintf(mine.host, sizeof mine.host, "?");
    memcpy(r->hosts[r->rank], mine.host, RANK_HOST);
    if (r->size == 1) return OK;
    allow_files();
    if (identity->mpi) TRY(mpi_share_identity(&own, &l->mpi));
    mine.token = own.token;
    TRY((r->rank == 0 ? rendezvous_host : rendezvous_join)(l, &own, &mine, seconds));
    TRY(heartbeat_open(l));
    OWNED char *hosts = memory_array((size_t)r->size, RANK_HOST);
    TRY(rendezvous_gather(r, mine.host, RANK_HOST, hosts));
    pthread_mutex_lock(&l->lock);              // the watch thread may be setting the verdict
    for (int rank = 0; rank < r->size; rank++) // another rank's text may lack its zero
        snprintf(r->hosts[rank], RANK_HOST, "%.*s", RANK_HOST - 1, hosts + rank * RANK_HOST);
    pthread_mutex_unlock(&l->lock);
    return OK;
}

Status rendezvous_open(const Identity *identity, double seconds, bool *reported, Rendezvous **rendezvous) {
    Link *l = memory_allocate(sizeof *l);
    Rendezvous *r = &l->base;
    *l = (Link){.base = {.rank = identity->rank, .size = identity->size},
                .count = identity->rank == 0 ? identity->size - 1 : 1,
                .watch.silence = seconds + PATIENCE_SECONDS, // until all ranks have connected
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .news = PTHREAD_COND_INITIALIZER};
    r->hosts = memory_array((size_t)r->size, sizeof *r->hosts);
    l->others = memory_array((size_t)l->count + 1, sizeof *l->others);
    for (int i = 0; i < l->count; i++)
        l->others[i] = (Other){.rank = r->rank == 0 ? i + 1 : 0, .connections = {-1, -1}};
    Status status = meet(l, identity, seconds);
    if (reported) *reported = l->reported;
    if (status)
        rendezvous_close(r, status);
    else
        *rendezvous = r;
    return status;
}

void rendezvous_close(Rendezvous *r, Status why) {
    Link *l = (Link *)r;
    if (!r) return;
    heartbeat_close(l, why);
    for (int i = 0; i < l->count; i++) other_close(&l->others[i]);
    if (l->mpi && !why) l->mpi->close(); // rank 0 waits for the others
    status_free(l->verdict);
    memory_free(l->others);
    memory_free(r->hosts);
    memory_free(l);
}

/* ---- facts ---- */

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* A line of `mine` that `theirs` lacks, or has with another value. */
static Status lacking(const char *mine, const char *theirs, const char *me, const char *them) {
    for (const char *line = mine; *line; line = next_line(line)) {
        const int key = (int)strcspn(line, "=\n"), length = (int)strcspn(line, "\n");
        const char *other = theirs;
        while (*other && strncmp(other, line, (size_t)key + 1) != 0) other = next_line(other);
        const int other_length = (int)strcspn(other, "\n");
        if (!*other)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has no %.*s", me, length, line, them, key, line);
        if (length != other_length || strncmp(line, other, (size_t)length) != 0)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has %.*s: all ranks need the same", me, length,
                        line, them, other_length, other);
    }
    return OK;
}

Status rendezvous_compare(Rendezvous *r, const char *facts) {
    OWNED RankPart *parts = memory_array((size_t)r->size, sizeof *parts);
    const RankPart mine = {.data = (void *)(uintptr_t)facts, .bytes = strlen(facts)};
    Status status = rendezvous_collect(r, mine, parts);
    for (int rank = 1; rank < r->size; rank++) {
        char who[RANK_HOST + 32];
        snprintf(who, sizeof who, "rank %d on %s", rank, r->hosts[rank]);
        if (!status && r->rank == 0) status = lacking(facts, parts[rank].data, "rank 0", who);
        if (!status && r->rank == 0) status = lacking(parts[rank].data, facts, who, "rank 0");
        memory_free(parts[rank].data);
    }
    return rendezvous_agree(r, status);
}
