#define _GNU_SOURCE
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOOK_MS = 1000, SEND_SECONDS = 10 };
static const char magic[MAGIC_BYTES] = {'f', 'u', 's', 'e', 'b', 'o', 'x', 1}; // and the protocol's version

Answer answer_of(uint64_t token, Status status) {
    Answer answer = {.token = token, .code = status ? (int32_t)status_code(status) : ANSWER_WELCOME};
    memcpy(answer.magic, magic, sizeof magic);
    if (status) snprintf(answer.reason, sizeof answer.reason, "%s", status_message(status));
    return answer;
}

/* ---- facts ---- */

/* The value of a key among lines of KEY=VALUE, and its length; NULL where there is none. */
static const char *fact_value(const char *facts, const char *key, size_t key_length, size_t *length) {
    for (const char *line = facts; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, key_length) != 0 || line[key_length] != '=') continue;
        *length = strcspn(line + key_length + 1, "\n");
        return line + key_length + 1;
    }
    return NULL;
}

/* What `theirs` lacks of `mine`, or has otherwise. */
static Status facts_lacking(const char *mine, const char *theirs, const char *me, const char *them) {
    for (const char *line = mine; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t key = strcspn(line, "=\n"), length = 0, other_length = 0;
        const char *value = fact_value(mine, line, key, &length);
        const char *other = fact_value(theirs, line, key, &other_length);
        if (value && !other)
            return fail(ERROR_USAGE, "%s has %.*s=%.*s, and %s has no %.*s", me, (int)key, line, (int)length,
                        value, them, (int)key, line);
        if (value && (length != other_length || memcmp(value, other, length) != 0))
            return fail(ERROR_USAGE, "%s has %.*s=%.*s, and %s has %.*s=%.*s: all ranks need the same", me,
                        (int)key, line, (int)length, value, them, (int)key, line, (int)other_length, other);
    }
    return OK;
}

Status facts_compare(const char *mine, const char *theirs, const char *who) {
    TRY(facts_lacking(mine, theirs, "rank 0", who));
    return facts_lacking(theirs, mine, who, "rank 0");
}

/* ---- opening and closing ---- */

static Status say_who(const Identity *identity, const char *facts, Hello *hello) {
    *hello = (Hello){.token = identity->token,
                     .rank = identity->rank,
                     .size = identity->size,
                     .process = (int32_t)getpid()};
    memcpy(hello->magic, magic, sizeof magic);
    if (gethostname(hello->host, sizeof hello->host - 1) != 0) snprintf(hello->host, sizeof hello->host, "?");
    if (strlen(facts) >= sizeof hello->facts)
        return fail(ERROR_INTERNAL, "the ranks' facts are longer than %d bytes", FACTS_BYTES - 1);
    memcpy(hello->facts, facts, strlen(facts));
    return OK;
}

/* Rank 0 holds two sockets for each rank, more than many systems allow a process at first. */
static void allow_files(int size) {
    struct rlimit limit;
    const rlim_t needed = 2 * (rlim_t)size + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); // opening them says what was wrong
}

Status rendezvous_open(const Identity *identity, const char *facts, double seconds, bool *told,
                       Rendezvous **rendezvous) {
    bool ignored;
    if (!told) told = &ignored;
    *told = false;
    Rendezvous *r = memory_allocate(sizeof *r);
    const size_t size = (size_t)identity->size;
    *r = (Rendezvous){.rank = identity->rank,
                      .size = identity->size,
                      .local_rank = identity->local_rank,
                      .seconds = seconds};
    r->hosts = memory_array(size, sizeof *r->hosts);
    r->talks = memory_array(size, sizeof *r->talks);
    r->pulses = memory_array(size, sizeof *r->pulses);
    for (size_t i = 0; i < size; i++) r->talks[i] = r->pulses[i] = -1;
    Hello mine;
    Status status = say_who(identity, facts, &mine);
    if (!status && size > 1) {
        const double until = device_clock() + seconds;
        allow_files(r->rank == 0 ? r->size : 1);
        status = r->rank == 0 ? rendezvous_host(r, identity, &mine, until)
                              : rendezvous_join(r, identity, &mine, until, told);
    }
    if (!status) status = rendezvous_gather(r, mine.host, RANK_HOST, r->hosts);
    if (status)
        rendezvous_close(r);
    else
        *rendezvous = r;
    return status;
}

void rendezvous_close(Rendezvous *r) {
    if (!r) return;
    for (int i = 0; i < r->size; i++) {
        if (r->talks[i] >= 0) close(r->talks[i]);
        if (r->pulses[i] >= 0) close(r->pulses[i]);
    }
    memory_free(r->hosts);
    memory_free(r->talks);
    memory_free(r->pulses);
    memory_free(r);
}

/* ---- exchanges ---- */

typedef struct {
    Rendezvous *r;
    char *all; // (size, bytes)
    size_t bytes;
    size_t *have;         // (size) bytes that each rank has sent
    struct pollfd *waits; // (size)
    int missing;
} Collection;

static Status collect(Collection *c, double until) {
    const Rendezvous *r = c->r;
    for (int rank = 1; rank < r->size; rank++)
        c->waits[rank] = (struct pollfd){.fd = r->talks[rank], .events = POLLIN};
    c->waits[0].fd = -1;
    c->missing = r->size - 1;
    while (c->missing > 0) {
        if (poll(c->waits, (nfds_t)r->size, LOOK_MS) < 0 && errno != EINTR)
            return fail(ERROR_DEVICE, "rank 0 cannot wait for the others: %s", strerror(errno));
        for (int rank = 1; rank < r->size; rank++) {
            if (c->waits[rank].fd < 0) continue;
            long count = wire_take(r->talks[rank], c->all + (size_t)rank * c->bytes + c->have[rank],
                                   c->bytes - c->have[rank]);
            if (count < 0) return fail(ERROR_DEVICE, "rank %d on %s has gone", rank, r->hosts[rank]);
            c->have[rank] += (size_t)count;
            if (c->have[rank] < c->bytes && device_clock() > until)
                return fail(ERROR_DEVICE, "rank %d on %s has not come for %.0f s", rank, r->hosts[rank],
                            r->seconds);
            if (c->have[rank] < c->bytes) continue;
            c->waits[rank].fd = -1;
            c->missing--;
        }
    }
    return OK;
}

static Status gather_at_first(Rendezvous *r, size_t bytes, char *all) {
    Collection c = {.r = r, .all = all, .bytes = bytes};
    c.have = memory_array((size_t)r->size, sizeof *c.have);
    c.waits = memory_array((size_t)r->size, sizeof *c.waits);
    Status status = collect(&c, device_clock() + r->seconds);
    const Answer answer = answer_of(0, status);
    for (int rank = 1; rank < r->size; rank++) {
        const double until = device_clock() + SEND_SECONDS;
        bool sent = wire_send(r->talks[rank], &answer, sizeof answer, until) &&
                    (status || wire_send(r->talks[rank], all, (size_t)r->size * bytes, until));
        if (!sent && !status) status = fail(ERROR_DEVICE, "rank %d on %s has gone", rank, r->hosts[rank]);
    }
    memory_free(c.have);
    memory_free(c.waits);
    return status;
}

static Status gather_elsewhere(Rendezvous *r, const void *mine, size_t bytes, char *all) {
    const double until = device_clock() + r->seconds + SEND_SECONDS;
    const int connection = r->talks[0];
    Answer answer;
    if (!wire_send(connection, mine, bytes, until) ||
        !wire_receive(connection, &answer, sizeof answer, until))
        return fail(ERROR_DEVICE, "rank 0 on %s has gone: %s", r->hosts[0], strerror(errno));
    answer.reason[sizeof answer.reason - 1] = 0;
    if (answer.code) return fail((ErrorCode)answer.code, "%s", answer.reason);
    if (wire_receive(connection, all, (size_t)r->size * bytes, until)) return OK;
    return fail(ERROR_DEVICE, "rank 0 on %s has gone: %s", r->hosts[0], strerror(errno));
}

Status rendezvous_gather(Rendezvous *r, const void *mine, size_t bytes, void *all) {
    memmove((char *)all + (size_t)r->rank * bytes, mine, bytes);
    if (r->size == 1) return OK;
    return r->rank == 0 ? gather_at_first(r, bytes, all) : gather_elsewhere(r, mine, bytes, all);
}

Status rendezvous_agree(Rendezvous *r, Status mine) {
    typedef struct {
        int32_t code;
        char reason[REASON_BYTES];
    } Report;
    Report own = {.code = (int32_t)status_code(mine)}, *all = memory_array((size_t)r->size, sizeof *all);
    snprintf(own.reason, sizeof own.reason, "%s", status_message(mine));
    Status status = rendezvous_gather(r, &own, sizeof own, all);
    if (mine) {
        status_free(status);
        status = mine;
    }
    for (int rank = 0; rank < r->size && !status; rank++) {
        all[rank].reason[REASON_BYTES - 1] = 0;
        if (all[rank].code)
            status =
                fail((ErrorCode)all[rank].code, "rank %d on %s: %s", rank, r->hosts[rank], all[rank].reason);
    }
    memory_free(all);
    return status;
}
