/* rendezvous: the ranks of a run find each other and exchange small things: a library's unique id, handles,
 * errors. Every rank is connected to rank 0.
 *
 * Rank 0 listens on the first free one of RENDEZVOUS_PORTS ports from identity.port on; the others try them
 * in turn until one answers as this run's rank 0. MPI tells the ranks that it has started where rank 0 is,
 * and the token. Rank 0 refuses connections of another run (another token) or another version, and otherwise
 * ignores them. Nothing is encrypted: SECURITY.md says what follows. */
#pragma once

#include "comm/identity.h"

#include <stdbool.h>

__BEGIN_DECLS

enum { RENDEZVOUS_PORTS = 8, RANK_HOST = 64 };

typedef struct Rendezvous {
    int rank, size;
    char (*hosts)[RANK_HOST]; // (size) each rank's host name as the host itself reports it, truncated to fit
} Rendezvous;

/* Collective. Waits up to `seconds` for the other ranks. ERROR_USAGE if two processes have one rank or the
 * ranks disagree about their number, ERROR_DEVICE if ranks do not connect (the message names them), no port
 * is free, or rank 0 cannot be reached. Rank 0 reports its error to all ranks that connect; on these
 * `reported`, which may be NULL, is set. */
CHECKED Status rendezvous_open(const Identity *identity, double seconds, bool *reported,
                               Rendezvous **rendezvous);

/* Leaves the run, reporting an error to the others if `why` is not OK; the caller still owns `why`. The other
 * ranks may still be in their last collective. NULL is fine. */
void rendezvous_close(Rendezvous *rendezvous, Status why);

/* Collective: all = every rank's `bytes` bytes at `mine`, in rank order. ERROR_DEVICE if a rank is lost; the
 * message names it. */
CHECKED Status rendezvous_gather(Rendezvous *rendezvous, const void *mine, size_t bytes, void *all);

/* Collective: OK if `mine` is OK on every rank. A rank whose own status is OK gets the error of the first
 * rank that failed, with that rank's name. Takes ownership of `mine`. */
CHECKED Status rendezvous_agree(Rendezvous *rendezvous, Status mine);

/* Collective: rank 0 gets each rank's data, at most RANK_PART_MOST bytes and a zero byte, in parts[1] and on,
 * to be freed with memory_free even after an error. On other ranks `parts` may be NULL. */
enum { RANK_PART_MOST = 1 << 30 };
typedef struct {
    void *data;
    size_t bytes;
} RankPart;
CHECKED Status rendezvous_collect(Rendezvous *rendezvous, RankPart mine, RankPart *parts);

/* Collective, with properties that all ranks of a run must share, as lines of KEY=VALUE: ERROR_USAGE on all
 * ranks if a rank lacks one of rank 0's facts, has another value or an additional fact. The message names
 * rank, key and values. */
CHECKED Status rendezvous_compare(Rendezvous *rendezvous, const char *facts);

/* Collective: the seconds that each rank's device_clock() is ahead of rank 0's, and the largest possible
 * error. Only rank 0 gets `clocks` (size). */
typedef struct {
    double ahead, within;
} RankClock;
CHECKED Status rendezvous_clocks(Rendezvous *rendezvous, RankClock *clocks);

/* ---- heartbeats ---- */

/* A thread of each rank, the watch, sends heartbeats with the rank's current action and its duration. Rank 0
 * detects that a rank is
 *
 *     gone      its connection has closed without a last word
 *     failed    it has reported an error
 *     silent    nothing has been heard of it for HEARTBEAT_SILENCE seconds: its host is down, or it is stopped
 *     late      a step has taken longer than its deadline, and this rank has called the fewest collectives
 *
 * and tells all ranks. The other ranks detect the loss of rank 0 themselves. Then the thread of each rank
 * calls `lost` once, with an ERROR_DEVICE that names the lost rank, its host and its last action. `lost` is
 * meant to end the process, since the main thread may hang in a library; it must not call
 * rendezvous_close. */
enum {
    HEARTBEAT_SILENCE = 15,
    HEARTBEAT_LEAST = 10,
    HEARTBEAT_START = 600,
    HEARTBEAT_OTHER = 1800,
    HEARTBEAT_RECENT = 8
};

typedef struct {
    double
        timeout; // --comm-timeout: seconds for a step. 0: heartbeat_limit decides. Negative: no rank is ever
                 // late or silent
    double silence;                          // 0: HEARTBEAT_SILENCE
    void (*lost)(void *user, Status status); // takes the status
    void *user;
} HeartbeatSetup;

/* Starts the deadlines, and calls of `lost`. */
void heartbeat_begin(Rendezvous *rendezvous, const HeartbeatSetup *setup);

/* Begins step `step`; or another phase ("validation"), for which the ranks have HEARTBEAT_OTHER seconds or the
 * step's deadline if that is longer. NULL, one rank, is fine here and below. */
void heartbeat_step(Rendezvous *rendezvous, int64_t step);
void heartbeat_other(Rendezvous *rendezvous, const char *what);

/* Notes one more collective. printf-style. */
void heartbeat_note(Rendezvous *rendezvous, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A step's deadline after `steps` steps, of which the last took `recent` (HEARTBEAT_RECENT, a ring): three times
 * the slowest, at least HEARTBEAT_LEAST, and HEARTBEAT_START until there are two. Seconds. */
double heartbeat_limit(const double *recent, int64_t steps);

__END_DECLS
