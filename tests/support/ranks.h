/* ranks: a test's own processes, each a rank of a run, and what became of them. */
#pragma once

#include "comm/rendezvous.h"
#include "tests/support/expect.h"

#include <stdbool.h>
#include <sys/types.h>

enum { RANKS_MOST = 16, RANK_SKIPS = 77 };

typedef struct {
    int code;           // the exit code, 128 + the signal that ended it, or -1 where it had to be killed
    char message[1000]; // of the status that the body returned
    double seconds;     // from the start to the end
} RankEnd;

/* In a process of its own: assertions do not work there; what it returns is kept. */
typedef Status (*RankBody)(int rank, void *user);

/* Runs `count` processes at once and waits for them, `patience` seconds. What it returns stays until the next
 * call. A process that ends with RANK_SKIPS skips the test. */
const RankEnd *ranks_run(int count, RankBody body, void *user, double patience);

/* In a rank: ends it at once as one that skips the test. */
void rank_skip(void) __attribute__((noreturn));

/* Fails the test unless rank `rank` of these has ended with the code and, if it is not 0, a message that
 * holds `part`. */
void expect_rank(const RankEnd *ends, int rank, int code, const char *part);

/* The identity of a rank on this host, as somebody starts it: `port` from free_port. */
Identity identity_of(int rank, int size, int port);
int free_port(void); // RENDEZVOUS_PORTS that nobody listens on just now begin there

/* A status of ERROR_INTERNAL unless the condition holds. */
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) return (fail)(ERROR_INTERNAL, "line %d: %s", __LINE__, #condition);                \
    } while (0)
