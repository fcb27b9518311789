/* pulse: notices that a rank is gone or hangs, so that the others end instead of waiting for ever. A
 * thread in each rank tells rank 0 once a second that it lives, what it does and since when. Rank 0 finds
 * out
 *
 *     gone      a rank's connection has closed, and it had not said that it ends
 *     failed    a rank has said that it ends because of an error, and which
 *     silent    nothing has been heard of a rank for PULSE_SILENCE seconds: its host is down or it is stopped
 *     late      some rank's step has taken longer than its deadline; to blame is the one that has asked for
 *               the fewest collectives, for which the others wait
 *
 * and tells all. The others find out themselves when it is rank 0 that is gone or silent. Then each rank's
 * thread calls `lost` once, with an ERROR_DEVICE that names the rank, its host and its last action. It is
 * meant to abort the communicator, to print and to end the process, since the main thread may hang in a
 * library or a driver. It must not call pulse_close. */
#pragma once

#include "comm/board.h"
#include "comm/rendezvous.h"

enum { PULSE_SILENCE = 15 };

typedef struct Pulse Pulse;
typedef void (*PulseLost)(void *user, Status status); // takes the status

typedef struct {
    Rendezvous *rendezvous;
    Board *board; // where this rank notes what it does
    /* --comm-timeout: seconds that one step may take. 0: three times the slowest of the last eight steps, at
     * least PULSE_LEAST, and PULSE_START until there are two. Below 0: nothing is ever late, nor silent (for
     * debuggers). */
    double timeout;
    double silence; // 0: PULSE_SILENCE
    PulseLost lost;
    void *user;
} PulseSetup;

enum { PULSE_LEAST = 10, PULSE_START = 600, PULSE_OTHER = 1800 };

/* Collective. With one rank there is nothing to do, and no thread. ERROR_MEMORY. */
CHECKED Status pulse_open(const PulseSetup *setup, Pulse **pulse);

/* What follows, until the next of these calls, is step `step`, with a step's deadline; or something else
 * ("validation", "a checkpoint") that every rank may take PULSE_OTHER seconds for, or --comm-timeout if that
 * is longer. */
void pulse_step(Pulse *pulse, int64_t step);
void pulse_other(Pulse *pulse, const char *what);

/* This rank ends, for the reason `why` if that is not OK, which stays the caller's. No collective follows on
 * this rank, though others may still be in their last. NULL is fine. */
void pulse_close(Pulse *pulse, Status why);
