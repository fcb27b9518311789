/* A connection as a sequence of messages. */
#include "comm/rendezvous_internal.h"

#include "base/memory.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 100 };

/* Whether a head is of this run. */
static bool belongs(Channel *c, const Head *own) {
    const bool same = memcmp(c->head.magic, own->magic, MAGIC_BYTES) == 0;
    c->other_run = same && c->head.token != own->token;
    return same && !c->other_run && c->head.bytes >= 0 && c->head.bytes <= BODY_BYTES;
}

bool channel_hear(Channel *c, const Head *own) {
    const size_t head = sizeof c->head;
    while (!c->closed) {
        const size_t end = head + (c->have < head ? 0 : (size_t)c->head.bytes);
        if (c->have == end) {
            c->have = 0;
            return true;
        }
        char *to = c->have < head ? (char *)&c->head + c->have : c->body + (c->have - head);
        const long count = wire_take(c->connection, to, end - c->have);
        if (count == 0) return false;
        c->closed = count < 0;
        c->have += c->closed ? 0 : (size_t)count;
        if (!c->closed) c->heard = device_clock();
        if (c->have == head && end == head) c->closed = c->closed || !belongs(c, own);
    }
    return false;
}

bool channel_wait(Channel *c, const Head *own, double until) {
    struct pollfd waits = {.fd = c->connection, .events = POLLIN};
    while (!channel_hear(c, own)) {
        if (c->closed || device_clock() > until) return false;
        (void)poll(&waits, 1, LOOK_MS);
    }
    return true;
}

bool channel_say(Channel *c, const Head *own, Kind kind, const void *data, size_t bytes, double until) {
    Head head = *own;
    head.kind = (int32_t)kind;
    head.bytes = (int32_t)bytes;
    if (c->connection < 0) return false;
    if (kind == SAYS_ALIVE && pthread_mutex_trylock(&c->sending) != 0) return true;
    if (kind != SAYS_ALIVE) pthread_mutex_lock(&c->sending);
    const bool said =
        wire_send(c->connection, &head, sizeof head, until) && wire_send(c->connection, data, bytes, until);
    pthread_mutex_unlock(&c->sending);
    if (!said) (void)shutdown(c->connection, SHUT_RDWR); // the other may have got half of it
    return said;
}

const Beat *channel_beat(Channel *c) {
    Beat *beat = &c->last;
    memcpy(beat, c->body, sizeof *beat);
    beat->why.reason[REASON_BYTES - 1] = beat->phase[NOTE_BYTES - 1] = beat->action[NOTE_BYTES - 1] = 0;
    return beat;
}

Verdict verdict_of(Status status) {
    Verdict verdict = {.code = (int32_t)status_code(status)};
    snprintf(verdict.reason, sizeof verdict.reason, "%s", status_message(status));
    return verdict;
}

Status verdict_status(Verdict v) {
    const bool known = v.code >= ERROR_INTERNAL && v.code <= ERROR_NONFINITE;
    return fail(known ? (ErrorCode)v.code : ERROR_DEVICE, "%.*s", REASON_BYTES - 1, v.reason);
}

void channel_close(Channel *c) {
    if (c->connection >= 0) close(c->connection);
    memory_free(c->data);
    *c = (Channel){.rank = c->rank, .connection = -1, .sending = PTHREAD_MUTEX_INITIALIZER};
}
