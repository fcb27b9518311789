/* The rendezvous: rank 0 listens; the others connect and identify themselves. */
#include "comm/rendezvous_internal.h"

#include "comm/wire.h"
#include "kernels/device/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HELLO_SECONDS = 2, ANSWER_SECONDS = 3, TELLING_SECONDS = 2, PAUSE_MS = 100 };

void other_close(Other *o) {
    for (int i = 0; i < CONNECTIONS; i++) {
        if (o->connections[i] >= 0) close(o->connections[i]);
        o->connections[i] = -1;
    }
}

/* ---- the other ranks ---- */

/* Makes one of the two connections. ERROR_DEVICE if another port, or a later attempt, may succeed. */
static Status join_by(Link *l, int connection, const char *host, int port, const Hello *mine, double until) {
    const double soon = fmin(device_clock() + ANSWER_SECONDS, until);
    int *opened = &l->others->connections[connection];
    Hello hello = *mine, answer;
    hello.connection = connection;
    TRY(wire_connect(host, port, soon, opened));
    if (!wire_send(*opened, &hello, sizeof hello, soon) ||
        !wire_receive(*opened, &answer, sizeof answer, soon) ||
        memcmp(answer.magic, mine->magic, MAGIC_BYTES) != 0)
        return fail(ERROR_DEVICE, "the process that listens there is not a rank of this version");
    if (answer.token != mine->token)
        return fail(ERROR_DEVICE, "the process that listens there belongs to another run");
    snprintf(l->base.hosts[0], RANK_HOST, "%.*s", RANK_HOST - 1, answer.host);
    l->reported = answer.verdict.code != 0;
    return l->reported ? verdict_status(answer.verdict) : OK;
}

static Status join_at(Link *l, const Identity *identity, int port, const Hello *mine, double until) {
    Status status = OK;
    for (int c = 0; c < CONNECTIONS && !status; c++)
        status = join_by(l, c, identity->host, port, mine, until);
    if (status) other_close(l->others);
    return status;
}

/* Tries the ports in turn, repeatedly. Reports the first port's error. */
Status rendezvous_join(Link *l, const Identity *identity, const Hello *mine, double seconds) {
    const double until = device_clock() + seconds;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    Status first = OK;
    for (int i = 0; device_clock() < until; i = (i + 1) % RENDEZVOUS_PORTS) {
        Status status = join_at(l, identity, identity->port + i, mine, until);
        const bool again = status_code(status) == ERROR_DEVICE && !l->reported;
        if (i == 0 || !again) {
            status_free(first);
            first = status;
        } else {
            status_free(status);
        }
        if (!again) return first;
        if (i == RENDEZVOUS_PORTS - 1) (void)nanosleep(&pause, NULL);
    }
    return fail_at(first, "rank %d on %s has found no rank 0 of this run on %s for %.0f s: port %d",
                   l->base.rank, mine->host, identity->host, seconds, identity->port);
}

/* ---- rank 0 ---- */

typedef struct {
    Link *link;
    const Hello *mine;
    int missing; // connections that rank 0 still waits for
    int foreign; // connections that were refused
    Status wrong;
} Listener;

static Status examine(const Listener *m, const Hello *hello) {
    const Rendezvous *r = &m->link->base;
    if (hello->size != r->size)
        return fail(ERROR_USAGE, "rank %d on %s says that there are %d ranks, rank 0 on %s says %d",
                    hello->rank, hello->host, hello->size, m->mine->host, r->size);
    if (hello->rank < 1 || hello->rank >= r->size || hello->connection < 0 ||
        hello->connection >= CONNECTIONS)
        return fail(ERROR_USAGE, "a process on %s claims the invalid rank %d of %d; rank 0 is on %s",
                    hello->host, hello->rank, hello->size, m->mine->host);
    const int before = m->link->others[hello->rank - 1].process;
    if (before && (before != hello->process || strcmp(r->hosts[hello->rank], hello->host) != 0))
        return fail(ERROR_USAGE, "two processes say that they are rank %d: %d on %s and %d on %s",
                    hello->rank, before, r->hosts[hello->rank], hello->process, hello->host);
    return OK;
}

/* Takes over a connection of this run. */
static void seat(Listener *m, const Hello *hello, int connection) {
    Other *rank = &m->link->others[hello->rank - 1];
    int *place = &rank->connections[hello->connection];
    if (*place >= 0) close(*place); // the rank has given it up
    m->missing -= *place < 0;
    *place = connection;
    rank->process = hello->process;
    memcpy(m->link->base.hosts[hello->rank], hello->host, RANK_HOST);
}

/* Answers one connection. After an error every rank that connects is sent the error. */
static void take_newcomer(Listener *m, int connection) {
    Hello hello, answer = {.magic = MAGIC};
    const bool ours = wire_receive(connection, &hello, sizeof hello, device_clock() + HELLO_SECONDS) &&
                      memcmp(hello.magic, answer.magic, MAGIC_BYTES) == 0 && hello.token == m->mine->token;
    if (ours) {
        hello.host[RANK_HOST - 1] = 0;
        if (!m->wrong) m->wrong = examine(m, &hello);
        answer = *m->mine;
        answer.verdict = verdict_of(m->wrong);
    }
    m->foreign += !ours;
    if (wire_send(connection, &answer, sizeof answer, device_clock() + ANSWER_SECONDS) && ours && !m->wrong)
        seat(m, &hello, connection);
    else
        close(connection);
}

static Status missing_ranks(const Listener *m, int port, double seconds) {
    char names[128] = "";
    size_t length = 0;
    for (const Other *o = m->link->others; o < m->link->others + m->link->count; o++)
        if ((o->connections[EXCHANGE] < 0 || o->connections[WATCH] < 0) && length < sizeof names - 12)
            length += (size_t)snprintf(names + length, sizeof names - length, " %d", o->rank);
    return fail(ERROR_DEVICE,
                "rank 0 on %s, port %d, has waited %.0f s; missing of %d ranks:%s; refused connections: %d",
                m->mine->host, port, seconds, m->link->base.size, names, m->foreign);
}

static Status listen_somewhere(const Identity *identity, int *port, int *listener) {
    Status status = OK;
    *listener = -1;
    for (int i = 0; i < RENDEZVOUS_PORTS && *listener < 0; i++) {
        status_free(status);
        *port = identity->port + i;
        status = wire_listen(identity->host, *port, listener);
    }
    return fail_at(status, "rank 0: none of the ports %d to %d is free (MASTER_PORT sets the first)",
                   identity->port, identity->port + RENDEZVOUS_PORTS - 1);
}

Status rendezvous_host(Link *l, const Identity *identity, const Hello *mine, double seconds) {
    Listener m = {.link = l, .mine = mine, .missing = l->count * CONNECTIONS};
    int port, listener;
    double until = device_clock() + seconds;
    TRY(listen_somewhere(identity, &port, &listener));
    while (m.missing > 0) {
        const bool right = !m.wrong;
        const int connection = wire_accept(listener, until);
        if (connection >= 0)
            take_newcomer(&m, connection);
        else if (right)
            m.wrong = missing_ranks(&m, port, seconds);
        else
            break;
        if (right && m.wrong) until = device_clock() + TELLING_SECONDS;
    }
    close(listener);
    if (m.wrong) heartbeat_leave(l, m.wrong);
    return m.wrong;
}
