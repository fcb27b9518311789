/* The other ranks' part of the rendezvous. */
#include "comm/rendezvous_internal.h"

#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEARD_SECONDS = 10, PATIENCE_SECONDS = 10, FIRST_PAUSE_MS = 20, LONGEST_PAUSE_MS = 500 };

static double sooner(double a, double b) {
    return a < b ? a : b;
}

/* Why an answer is none, or OK. */
static Status examine(const Answer *answer, const Hello *mine) {
    if (memcmp(answer->magic, mine->magic, MAGIC_BYTES) != 0)
        return fail(ERROR_DEVICE, "what answers there is not a rank of this version of fusebox");
    if (answer->code == ANSWER_OTHER_RUN || answer->token != mine->token)
        return fail(ERROR_DEVICE, "what answers there belongs to another run");
    return OK;
}

/* Says hello at one port. ERROR_DEVICE where another may do, or a later time; `connected`: somebody is there. */
static Status say_hello(const Identity *identity, const Hello *hello, int port, double until, bool *connected,
                        int *connection) {
    double heard = sooner(until, device_clock() + HEARD_SECONDS);
    int opened;
    Answer answer = {0};
    *connected = false;
    TRY(wire_connect(identity->host, port, heard, &opened));
    *connected = true;
    Status status = OK;
    if (!wire_send(opened, hello, sizeof *hello, heard) ||
        !wire_receive(opened, &answer, sizeof answer, heard))
        status = fail(ERROR_DEVICE, "what listens there does not answer: %s", strerror(errno));
    if (!status) status = examine(&answer, hello);
    answer.reason[sizeof answer.reason - 1] = 0;
    if (!status && answer.code != ANSWER_WELCOME) status = fail((ErrorCode)answer.code, "%s", answer.reason);
    if (status)
        close(opened);
    else
        *connection = opened;
    return status;
}

/* Tries `count` ports from `port` on, again and again, until rank 0 answers or the time is up; `port` becomes
 * the one where it does. The error is of somebody who answered, if anybody did. */
static Status find(const Identity *identity, const Hello *hello, double until, int count, int *port,
                   int *connection) {
    const int first = *port;
    Status kept = OK;
    bool kept_connected = false;
    for (int pause = FIRST_PAUSE_MS;; pause = pause < LONGEST_PAUSE_MS ? 2 * pause : pause) {
        for (*port = first; *port < first + count; ++*port) {
            bool connected;
            Status status = say_hello(identity, hello, *port, until, &connected, connection);
            if (status && kept_connected && !connected && status_code(status) == ERROR_DEVICE) {
                status_free(status);
                continue;
            }
            status_free(kept);
            kept = fail_at(status, "port %d", *port);
            kept_connected = connected;
            if (status_code(kept) != ERROR_DEVICE) return kept;
        }
        if (device_clock() > until) return kept;
        const struct timespec length = {.tv_nsec = pause * 1000000L};
        (void)nanosleep(&length, NULL);
    }
}

/* Waits until rank 0 says that everybody has come, or what is wrong. */
static Status wait_for_all(const Rendezvous *r, const Identity *identity, const Hello *mine, double until) {
    Answer answer;
    if (!wire_receive(r->talks[0], &answer, sizeof answer, until + PATIENCE_SECONDS))
        return fail(ERROR_DEVICE, "rank %d on %s: rank 0 on %s has gone before all ranks had come: %s",
                    r->rank, mine->host, identity->host, strerror(errno));
    TRY(examine(&answer, mine));
    answer.reason[sizeof answer.reason - 1] = 0;
    return answer.code ? fail((ErrorCode)answer.code, "%s", answer.reason) : OK;
}

Status rendezvous_join(Rendezvous *r, const Identity *identity, const Hello *mine, double until) {
    Hello hello = *mine;
    int port = identity->port;
    hello.channel = CHANNEL_TALK;
    Status status = find(identity, &hello, until, RENDEZVOUS_PORTS, &port, &r->talks[0]);
    hello.channel = CHANNEL_PULSE;
    if (!status) status = find(identity, &hello, until, 1, &port, &r->pulses[0]);
    if (status_code(status) == ERROR_DEVICE)
        return fail_at(status, "rank %d on %s has found no rank 0 of this run on %s for %.0f s", r->rank,
                       mine->host, identity->host, r->seconds);
    TRY(status);
    return wait_for_all(r, identity, mine, until);
}
