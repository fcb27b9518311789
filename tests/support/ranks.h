/* ranks: starts a test's own processes as ranks of a run, and reports how they ended. */
#pragma once

#include "comm/rendezvous.h"
#include "tests/support/expect.h"

#include <stdbool.h>
#include <sys/types.h>

enum { RANKS_MOST = 16, RANK_SKIPS = 77 };

typedef struct {
    int code;           // the exit code, 128 + the signal that ended it, or -1 if it had to be killed
    char message[1000]; // of the status that the body returned
    double seconds;     // from start to end
} RankEnd;

/* The body of a rank. It runs in its own process, where cmocka's assertions do not work; its status is
 * reported. */
typedef Status (*RankBody)(int rank, void *user);

/* Runs `count` processes at once and waits for them, `patience` seconds. The result is valid until the next
 * call. A process that ends with RANK_SKIPS skips the test. */
const RankEnd *ranks_run(int count, RankBody body, void *user, double patience);

/* Ends a rank at once and skips the test. */
void rank_skip(void) __attribute__((noreturn));

/* Fails the test unless rank `rank` has ended with the code and, if it is not 0, a message that contains
 * `part`. */
void expect_rank(const RankEnd *ends, int rank, int code, const char *part);

/* The identity of a rank on this host, as a launcher would set it; `port` is free_port's. */
Identity identity_of(int rank, int size, int port);
int free_port(void); // the first of RENDEZVOUS_PORTS ports that are free at the moment

/* Returns ERROR_INTERNAL unless the condition holds. */
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) return (fail)(ERROR_INTERNAL, "line %d: %s", __LINE__, #condition);                \
    } while (0)
