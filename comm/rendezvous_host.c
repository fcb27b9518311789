/* Rank 0's part of the rendezvous. */
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NEWCOMERS = 64, NEWCOMER_SECONDS = 5, ANSWER_SECONDS = 5, TELLING_SECONDS = 2, LOOK_MS = 100 };

/* A connection whose hello has not come in whole. */
typedef struct {
    int connection;
    size_t have;  // bytes of the hello
    double until; // it has this long to say it
    Hello hello;
} Newcomer;

typedef struct {
    Rendezvous *r;
    const Hello *mine;
    int listener, missing; // connections that have not been made yet
    int foreign;           // connections that were refused
    int count;
    int32_t *processes; // (size) of each rank that has come
    Newcomer *newcomers;
    Status failure; // what is wrong, once something is
    int told;       // ranks that know it
} Meeting;

static void refuse(Meeting *m, int connection, int code, const char *reason) {
    Answer answer = answer_of(m->mine->token, OK);
    answer.code = code;
    snprintf(answer.reason, sizeof answer.reason, "%s", reason);
    (void)wire_send(connection, &answer, sizeof answer, device_clock()); // it is gone all the same
    close(connection);
}

/* Whether a hello is right. */
static Status examine(const Meeting *m, const Hello *hello) {
    char who[128];
    const Rendezvous *r = m->r;
    if (hello->size != r->size)
        return fail(ERROR_USAGE, "rank %d on %s says that there are %d ranks, rank 0 on %s says %d",
                    hello->rank, hello->host, hello->size, m->mine->host, r->size);
    if (hello->rank < 1 || hello->rank >= r->size || hello->channel < 0 || hello->channel >= CHANNELS)
        return fail(ERROR_USAGE, "a process on %s says that it is rank %d of %d beside rank 0 on %s",
                    hello->host, hello->rank, hello->size, m->mine->host);
    if (m->processes[hello->rank] &&
        (m->processes[hello->rank] != hello->process || strcmp(r->hosts[hello->rank], hello->host) != 0))
        return fail(ERROR_USAGE, "two processes say that they are rank %d: %d on %s and %d on %s",
                    hello->rank, m->processes[hello->rank], r->hosts[hello->rank], hello->process,
                    hello->host);
    snprintf(who, sizeof who, "rank %d on %s", hello->rank, hello->host);
    return facts_compare(m->mine->facts, hello->facts, who);
}

/* A hello of this run: the connection becomes its rank's. */
static void welcome(Meeting *m, int connection, Hello *hello) {
    hello->host[sizeof hello->host - 1] = hello->facts[sizeof hello->facts - 1] = 0;
    if (!m->failure) m->failure = examine(m, hello);
    if (m->failure) {
        m->told += hello->channel == CHANNEL_TALK;
        refuse(m, connection, (int)status_code(m->failure), status_message(m->failure));
        return;
    }
    int *place = (hello->channel == CHANNEL_TALK ? m->r->talks : m->r->pulses) + hello->rank;
    if (*place >= 0)
        close(*place); // it has given that one up and comes again
    else
        m->missing--;
    *place = connection;
    m->processes[hello->rank] = hello->process;
    memcpy(m->r->hosts[hello->rank], hello->host, sizeof hello->host);
    Answer answer = answer_of(m->mine->token, OK);
    (void)wire_send(connection, &answer, sizeof answer, device_clock() + ANSWER_SECONDS);
}

/* Reads more of a newcomer's hello. False once it is no newcomer any longer. */
static bool hear(Meeting *m, Newcomer *n) {
    long count = wire_take(n->connection, (char *)&n->hello + n->have, sizeof n->hello - n->have);
    n->have += count > 0 ? (size_t)count : 0;
    bool foreign = memcmp(n->hello.magic, m->mine->magic, n->have < MAGIC_BYTES ? n->have : MAGIC_BYTES) != 0;
    if (count < 0 || foreign || device_clock() > n->until) {
        m->foreign++;
        close(n->connection);
        return false;
    }
    if (n->have < sizeof n->hello) return true;
    if (n->hello.token == m->mine->token) {
        welcome(m, n->connection, &n->hello);
    } else {
        m->foreign++;
        refuse(m, n->connection, ANSWER_OTHER_RUN, "");
    }
    return false;
}

/* Waits a little for something to come in, and takes it. */
static void look(Meeting *m) {
    struct pollfd waits[NEWCOMERS + 1] = {{.fd = m->listener, .events = POLLIN}};
    for (int i = 0; i < m->count; i++)
        waits[i + 1] = (struct pollfd){.fd = m->newcomers[i].connection, .events = POLLIN};
    (void)poll(waits, (nfds_t)m->count + 1, LOOK_MS);
    while (m->count < NEWCOMERS) {
        int connection = wire_accept(m->listener);
        if (connection < 0) break;
        m->newcomers[m->count++] =
            (Newcomer){.connection = connection, .until = device_clock() + NEWCOMER_SECONDS};
    }
    for (int i = m->count - 1; i >= 0; i--)
        if (!hear(m, &m->newcomers[i])) m->newcomers[i] = m->newcomers[--m->count];
}

/* "ranks 2, 3 and 5 more of 8 have not come" */
static Status missing_ranks(const Meeting *m, double seconds) {
    enum { NAMED = 4 };
    char names[128] = "", foreign[96] = "";
    int named = 0, more = 0;
    for (int rank = 1; rank < m->r->size; rank++) {
        if (m->r->talks[rank] >= 0 && m->r->pulses[rank] >= 0) continue;
        size_t length = strlen(names);
        if (named < NAMED)
            snprintf(names + length, sizeof names - length, "%s%d", named++ ? ", " : "", rank);
        else
            more++;
    }
    size_t length = strlen(names);
    if (more) snprintf(names + length, sizeof names - length, " and %d more", more);
    if (m->foreign)
        snprintf(foreign, sizeof foreign, "; %d connection%s not of this run came instead", m->foreign,
                 m->foreign == 1 ? "" : "s");
    return fail(ERROR_DEVICE, "rank 0 on %s, port %d, has waited %.0f s: rank%s %s of %d ha%s not come%s",
                m->mine->host, wire_port(m->listener), seconds, named > 1 ? "s" : "", names, m->r->size,
                named > 1 ? "ve" : "s", foreign);
}

static Status listen_somewhere(const Identity *identity, int *listener) {
    Status status = OK;
    *listener = identity->listener;
    if (*listener >= 0) return OK;
    for (int i = 0; i < RENDEZVOUS_PORTS; i++) {
        status_free(status);
        status = wire_listen(identity->port + i, strcmp(identity->host, "127.0.0.1") == 0, listener);
        if (!status) return OK;
    }
    return fail_at(status, "rank 0: none of the ports %d to %d is free (MASTER_PORT sets the first)",
                   identity->port, identity->port + RENDEZVOUS_PORTS - 1);
}

/* Tells those that have come that all have, or what is wrong; and that, too, those that come a little
 * later. */
static void tell(Meeting *m) {
    const Answer answer = answer_of(m->mine->token, m->failure);
    for (int rank = 1; rank < m->r->size; rank++)
        if (m->r->talks[rank] >= 0)
            m->told += wire_send(m->r->talks[rank], &answer, sizeof answer, device_clock() + ANSWER_SECONDS);
    const double until = device_clock() + TELLING_SECONDS;
    while (m->failure && m->listener >= 0 && m->told < m->r->size - 1 && device_clock() < until) look(m);
}

Status rendezvous_host(Rendezvous *r, const Identity *identity, const Hello *mine, double until) {
    Meeting m = {.r = r, .mine = mine, .missing = CHANNELS * (r->size - 1), .listener = -1};
    m.processes = memory_array((size_t)r->size, sizeof *m.processes);
    m.newcomers = memory_array(NEWCOMERS, sizeof *m.newcomers);
    m.failure = listen_somewhere(identity, &m.listener);
    while (!m.failure && m.missing > 0) {
        look(&m);
        if (!m.failure && m.missing > 0 && device_clock() > until) m.failure = missing_ranks(&m, r->seconds);
    }
    tell(&m);
    for (int i = 0; i < m.count; i++) close(m.newcomers[i].connection);
    if (m.listener >= 0) close(m.listener);
    memory_free(m.processes);
    memory_free(m.newcomers);
    return m.failure;
}
