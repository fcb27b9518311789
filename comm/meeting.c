/* Rank 0's part of a meeting: it listens, the others say who they are, and it sees whether they mean the same
 * run. */
#include "comm/rendezvous_internal.h"

#include "comm/wire.h"
#include "kernels/device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HELLO_SECONDS = 2, ANSWER_SECONDS = 5, TELLING_SECONDS = 2 };

/* ---- facts ---- */

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* What `theirs` lacks of `mine`, or has otherwise. */
static Status facts_lacking(const char *mine, const char *theirs, const char *me, const char *them) {
    for (const char *line = mine; *line; line = next_line(line)) {
        const int key = (int)strcspn(line, "=\n"), length = (int)strcspn(line, "\n");
        const char *other = theirs;
        while (*other && strncmp(other, line, (size_t)key + 1) != 0) other = next_line(other);
        const int there = (int)strcspn(other, "\n");
        if (!*other)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has no %.*s", me, length, line, them, key, line);
        if (length != there || strncmp(line, other, (size_t)length) != 0)
            return fail(ERROR_USAGE, "%s has %.*s, and %s has %.*s: all ranks need the same", me, length,
                        line, them, there, other);
    }
    return OK;
}

/* ---- newcomers ---- */

typedef struct {
    Link *link;
    const Hello *mine;
    int listener, port;
    int missing; // ranks that have not come yet
    int foreign; // connections that were refused
    int told;    // ranks that know what is wrong, once something is
    double until;
    Status wrong;
} Meeting;

/* Whether a hello is right. */
static Status examine(const Meeting *m, const Hello *hello) {
    char who[128];
    const Rendezvous *r = &m->link->base;
    if (hello->size != r->size)
        return fail(ERROR_USAGE, "rank %d on %s says that there are %d ranks, rank 0 on %s says %d",
                    hello->rank, hello->host, hello->size, m->mine->host, r->size);
    if (hello->rank < 1 || hello->rank >= r->size)
        return fail(ERROR_USAGE, "a process on %s says that it is rank %d of %d beside rank 0 on %s",
                    hello->host, hello->rank, hello->size, m->mine->host);
    const int before = m->link->others[hello->rank - 1].process;
    if (before && (before != hello->process || strcmp(r->hosts[hello->rank], hello->host) != 0))
        return fail(ERROR_USAGE, "two processes say that they are rank %d: %d on %s and %d on %s",
                    hello->rank, before, r->hosts[hello->rank], hello->process, hello->host);
    snprintf(who, sizeof who, "rank %d on %s", hello->rank, hello->host);
    TRY(facts_lacking(m->mine->facts, hello->facts, "rank 0", who));
    return facts_lacking(hello->facts, m->mine->facts, who, "rank 0");
}

static void answer(Meeting *m, Channel *c, Status wrong) {
    const Beat beat = {.why = verdict_of(wrong)};
    m->told += wrong && c->connection >= 0;
    (void)channel_say(c, &m->link->head, wrong ? SAYS_VERDICT : SAYS_WELCOME, &beat, sizeof beat,
                      device_clock() + ANSWER_SECONDS);
}

/* Tells those that have come; those that come a little later are told then. */
static void give_up(Meeting *m, Status wrong) {
    m->wrong = wrong;
    m->until = device_clock() + TELLING_SECONDS;
    for (int i = 0; i < m->link->count; i++) answer(m, &m->link->others[i], wrong);
}

/* A hello of this run: the connection becomes its rank's. */
static void seat(Meeting *m, Channel *newcomer) {
    Link *l = m->link;
    Hello hello;
    memcpy(&hello, newcomer->body, sizeof hello);
    hello.host[sizeof hello.host - 1] = hello.facts[sizeof hello.facts - 1] = 0;
    Status wrong = m->wrong ? OK : examine(m, &hello);
    if (wrong) give_up(m, wrong);
    answer(m, newcomer, m->wrong);
    if (m->wrong) {
        channel_close(newcomer);
        return;
    }
    Channel *rank = &l->others[hello.rank - 1];
    m->missing -= rank->connection < 0;
    channel_close(rank); // where there is one, it has been given up
    rank->connection = newcomer->connection;
    rank->process = hello.process;
    memcpy(l->base.hosts[hello.rank], hello.host, sizeof hello.host);
}

/* One connection after another: whoever belongs here speaks at once. */
static void take_newcomer(Meeting *m, int connection) {
    const Head *own = &m->link->head;
    Channel newcomer = {.connection = connection, .sending = PTHREAD_MUTEX_INITIALIZER};
    const bool spoke = channel_wait(&newcomer, own, device_clock() + HELLO_SECONDS);
    if (spoke && newcomer.head.kind == SAYS_HELLO && newcomer.head.bytes == sizeof(Hello)) {
        seat(m, &newcomer);
        return;
    }
    Head other = *own; // says that this is another run, and not this one's token
    other.token = 0;
    m->foreign++;
    if (newcomer.other_run) (void)wire_send(connection, &other, sizeof other, device_clock());
    channel_close(&newcomer);
}

/* "ranks 2, 3 and 5 more of 8 have not come" */
static Status missing_ranks(const Meeting *m, double seconds) {
    enum { NAMED = 4 };
    char names[128] = "", foreign[96] = "";
    size_t length = 0;
    int named = 0;
    for (const Channel *c = m->link->others; c < m->link->others + m->link->count && named < NAMED; c++)
        if (c->connection < 0)
            length +=
                (size_t)snprintf(names + length, sizeof names - length, "%s%d", named++ ? ", " : "", c->rank);
    if (m->missing > named)
        snprintf(names + length, sizeof names - length, " and %d more", m->missing - named);
    if (m->foreign)
        snprintf(foreign, sizeof foreign, "; %d connection%s not of this run came instead", m->foreign,
                 m->foreign == 1 ? "" : "s");
    return fail(ERROR_DEVICE, "rank 0 on %s, port %d, has waited %.0f s: rank%s %s of %d ha%s not come%s",
                m->mine->host, m->port, seconds, named > 1 ? "s" : "", names, m->link->base.size,
                named > 1 ? "ve" : "s", foreign);
}

static Status listen_somewhere(const Identity *identity, Meeting *m) {
    Status status = OK;
    m->listener = identity->listener;
    for (int i = 0; i < RENDEZVOUS_PORTS && m->listener < 0; i++) {
        status_free(status);
        m->port = identity->port + i;
        status = wire_listen(identity->host, m->port, &m->listener);
    }
    return fail_at(status, "rank 0: none of the ports %d to %d is free (MASTER_PORT sets the first)",
                   identity->port, identity->port + RENDEZVOUS_PORTS - 1);
}

Status meeting_host(Link *l, const Identity *identity, const Hello *mine, double seconds) {
    Meeting m = {.link = l,
                 .mine = mine,
                 .port = identity->port,
                 .missing = l->count,
                 .until = device_clock() + seconds};
    TRY(listen_somewhere(identity, &m));
    while (m.wrong ? m.told < l->count : m.missing > 0) {
        const int connection = wire_accept(m.listener, m.until);
        if (connection >= 0)
            take_newcomer(&m, connection);
        else if (m.wrong)
            break;
        else
            give_up(&m, missing_ranks(&m, seconds));
    }
    close(m.listener);
    return m.wrong;
}
