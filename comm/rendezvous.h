/* rendezvous: the ranks of a run find each other by TCP, make sure that they mean the same run, and
 * exchange small things: a library's unique id, handles, which GPU each has. Every rank has one connection
 * to rank 0, for what it exchanges and for the watch (below). Nothing heavy goes here.
 *
 * Rank 0 listens on the first port that is free of RENDEZVOUS_PORTS from identity.port on; the others try them
 * in turn until one answers as this run's rank 0. Ranks that MPI has started ask MPI where rank 0 listens and
 * for a token that nobody else can know. Rank 0 hears one newcomer after another. A connection that is not of
 * this run (another token, another version of this protocol, no fusebox at all) is refused and otherwise
 * ignored. What is said is not encrypted: SECURITY.md says what that means. */
#pragma once

#include "comm/identity.h"

#include <stdbool.h>

__BEGIN_DECLS

enum { RENDEZVOUS_PORTS = 8, RANK_HOST = 64, FACTS_BYTES = 4096 };

typedef struct Rendezvous {
    int rank, size, local_rank;
    char (*hosts)[RANK_HOST]; // (size) each rank's host as it calls itself, cut to fit
} Rendezvous;

/* Collective. `facts` are lines of KEY=VALUE in which all ranks must agree, less than FACTS_BYTES:
 * version, configuration, a hash of the data. Waits up to `seconds` for the others. ERROR_USAGE where
 * ranks disagree (the message names rank, key and both values), where two processes have one rank, or
 * where a host does not exist; ERROR_DEVICE where ranks do not come (the message names them), ports are
 * taken, or rank 0 cannot be reached. What rank 0 finds wrong all ranks are told that have come: `told`,
 * which may be NULL, is then true on these. */
CHECKED Status rendezvous_open(const Identity *identity, const char *facts, double seconds, bool *told,
                               Rendezvous **rendezvous);

/* This rank ends, for the reason `why` if that is not OK, which stays the caller's and which the others are
 * told. No collective follows on this rank, though others may still be in their last. NULL is fine. */
void rendezvous_close(Rendezvous *rendezvous, Status why);

/* Collective: all = every rank's `bytes` bytes at `mine`, in rank order. The same number on each rank.
 * ERROR_DEVICE when a rank is gone; the message names it. How long a rank may take the watch says. */
CHECKED Status rendezvous_gather(Rendezvous *rendezvous, const void *mine, size_t bytes, void *all);

/* Collective: OK where it is OK on every rank; else on those where it was OK an error of the same code that
 * says which rank failed and why. Takes `mine` over. What follows a step that can fail on one rank alone. */
CHECKED Status rendezvous_agree(Rendezvous *rendezvous, Status mine);

/* Collective: rank 0 gets what each rank has, up to RANK_PART_MOST bytes: parts[1] and on, to be freed with
 * memory_free also after an error. Elsewhere `parts` may be NULL. ERROR_DEVICE. */
enum { RANK_PART_MOST = 1 << 30 };
typedef struct {
    void *data;
    size_t bytes;
} RankPart;
CHECKED Status rendezvous_collect(Rendezvous *rendezvous, RankPart mine, RankPart *parts);

/* Collective: how far each rank's device_clock() is ahead of rank 0's, and by how much that may be wrong at
 * most; seconds. Only rank 0 gets `clocks` (size). */
typedef struct {
    double ahead, within;
} RankClock;
CHECKED Status rendezvous_clocks(Rendezvous *rendezvous, RankClock *clocks);

/* ---- the watch ---- */

/* The watch notices that a rank is gone or hangs, so that the others end instead of waiting for ever. Each
 * rank tells rank 0 all the time that it lives, what it does and since when. Rank 0 finds out
 *
 *     gone      a rank's connection has closed, and it had not said that it ends
 *     failed    a rank has said that it ends because of an error, and which
 *     silent    nothing has been heard of a rank for PULSE_SILENCE seconds: its host is down or it is stopped
 *     late      a step has taken longer than its deadline; to blame is the rank that has asked for the fewest
 *               collectives, for which the others wait
 *
 * and tells all. The others find out themselves when it is rank 0 that is gone or silent. Then each rank's
 * thread calls `lost` once, with an ERROR_DEVICE that names the rank, its host and its last action. It is
 * meant to abort the communicator, to print and to end the process, since the main thread may hang in a
 * library or a driver. It must not call rendezvous_close. */
enum { PULSE_SILENCE = 15, PULSE_LEAST = 10, PULSE_START = 600, PULSE_OTHER = 1800, PULSE_RECENT = 8 };

typedef struct {
    /* --comm-timeout: seconds that one step may take. 0: as pulse_limit says. Below 0: nothing is ever late,
     * nor silent (for debuggers). */
    double timeout;
    double silence;                          // 0: PULSE_SILENCE
    void (*lost)(void *user, Status status); // takes the status
    void *user;
} PulseSetup;

/* From here on the others are watched; `watch` is copied. */
void pulse_begin(Rendezvous *rendezvous, const PulseSetup *watch);

/* What follows, until the next of these calls, is step `step`, with a step's deadline; or something else
 * ("validation", "a checkpoint") that every rank may take PULSE_OTHER seconds for, or --comm-timeout if that
 * is longer. NULL, one rank, is fine here and below. */
void pulse_step(Rendezvous *rendezvous, int64_t step);
void pulse_other(Rendezvous *rendezvous, const char *what);

/* What this rank does in it: one more collective, which waits for all. printf-style. */
void pulse_note(Rendezvous *rendezvous, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Seconds that a step may take after `steps` others, of which the last took `recent` (PULSE_RECENT, a ring):
 * three times the slowest, at least PULSE_LEAST, and PULSE_START until there are two. */
double pulse_limit(const double *recent, int64_t steps);

__END_DECLS
