/* The other ranks' part of the rendezvous. */
#include "comm/rendezvous_internal.h"

#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEARD_SECONDS = 3, PATIENCE_SECONDS = 10, FIRST_PAUSE_MS = 20, LONGEST_PAUSE_MS = 500 };

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

typedef enum { NOBODY, CONNECTED, ANSWERED } Reached;

/* Says hello at one port. ERROR_DEVICE where another may do, or a later time. */
static Status say_hello(const Identity *identity, const Hello *hello, int port, double until,
                        Reached *reached, int *connection, bool *told) {
    double heard = sooner(until, device_clock() + HEARD_SECONDS);
    int opened;
    Answer answer = {0};
    *reached = NOBODY;
    TRY(wire_connect(identity->host, port, heard, &opened));
    *reached = CONNECTED;
    Status status = OK;
    if (!wire_send(opened, hello, sizeof *hello, heard) ||
        !wire_receive(opened, &answer, sizeof answer, heard)) {
        status = fail(ERROR_DEVICE, "what listens there does not answer: %s", strerror(errno));
    } else {
        *reached = ANSWERED;
        status = examine(&answer, hello);
    }
    answer.reason[sizeof answer.reason - 1] = 0;
    if (!status && answer.code != ANSWER_WELCOME) {
        status = fail((ErrorCode)answer.code, "%s", answer.reason);
        *told = true;
    }
    if (status)
        close(opened);
    else
        *connection = opened;
    return status;
}

/* Whether rank 0 has something to say on a connection, or has closed it. */
static bool has_spoken(int connection) {
    struct pollfd waits = {.fd = connection, .events = POLLIN};
    return connection >= 0 && poll(&waits, 1, 0) > 0;
}

/* Tries `count` ports from `port` on, again and again, until rank 0 answers, the time is up or rank 0
 * speaks on the connection `talk` (-1: none); `port` becomes the one where it answers. The error is of
 * whoever has come closest. */
static Status find(const Identity *identity, const Hello *hello, double until, int talk, int count, int *port,
                   int *connection, bool *told) {
    const int first = *port;
    Status kept = OK;
    Reached closest = NOBODY;
    for (int pause = FIRST_PAUSE_MS;; pause = pause < LONGEST_PAUSE_MS ? 2 * pause : pause) {
        for (*port = first; *port < first + count; ++*port) {
            Reached reached;
            Status status = say_hello(identity, hello, *port, until, &reached, connection, told);
            if (status_code(status) == ERROR_DEVICE && reached < closest) {
                status_free(status);
                continue;
            }
            status_free(kept);
            kept = status;
            closest = reached;
            if (status_code(kept) != ERROR_DEVICE) return kept;
            kept = fail_at(kept, "port %d", *port);
        }
        if (device_clock() > until || has_spoken(talk)) return kept;
        const struct timespec length = {.tv_nsec = pause * 1000000L};
        (void)nanosleep(&length, NULL);
    }
}

/* Waits until rank 0 says that everybody has come, or what is wrong. */
static Status wait_for_all(const Rendezvous *r, const Identity *identity, const Hello *mine, double until,
                           bool *told) {
    Answer answer;
    if (!wire_receive(r->talks[0], &answer, sizeof answer, until + PATIENCE_SECONDS))
        return fail(ERROR_DEVICE, "rank %d on %s: rank 0 on %s has gone before all ranks had come: %s",
                    r->rank, mine->host, identity->host, strerror(errno));
    TRY(examine(&answer, mine));
    answer.reason[sizeof answer.reason - 1] = 0;
    *told = answer.code != 0;
    return answer.code ? fail((ErrorCode)answer.code, "%s", answer.reason) : OK;
}

Status rendezvous_join(Rendezvous *r, const Identity *identity, const Hello *mine, double until, bool *told) {
    Hello hello = *mine;
    int port = identity->port;
    hello.channel = CHANNEL_TALK;
    Status status = find(identity, &hello, until, -1, RENDEZVOUS_PORTS, &port, &r->talks[0], told);
    hello.channel = CHANNEL_PULSE;
    if (!status) status = find(identity, &hello, until, r->talks[0], 1, &port, &r->pulses[0], told);
    if (!status || has_spoken(r->talks[0])) {
        status_free(status);
        return wait_for_all(r, identity, mine, until, told);
    }
    return status_code(status) != ERROR_DEVICE
               ? status
               : fail_at(status, "rank %d on %s has found no rank 0 of this run on %s for %.0f s", r->rank,
                         mine->host, identity->host, r->seconds);
}
