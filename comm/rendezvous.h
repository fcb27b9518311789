/* rendezvous: the ranks of a run find each other by TCP, make sure that they mean the same run, and
 * exchange small things: a library's unique id, handles, which GPU each has. Every rank has two
 * connections to rank 0: one for this and one for the watch (pulse.h). Nothing heavy goes here.
 *
 * Rank 0 listens on the first port that is free of RENDEZVOUS_PORTS from identity.port on; the others try
 * them in turn until one answers as this run's rank 0. A connection that is not of this run (another
 * token, another version of this protocol, no fusebox at all) is refused and otherwise ignored. Token and
 * protocol keep runs apart that meet by mistake; they are no protection from an attacker in the network. */
#pragma once

#include "comm/identity.h"

#include <stdbool.h>

__BEGIN_DECLS

enum { RENDEZVOUS_PORTS = 8, RANK_HOST = 64, FACTS_BYTES = 4096 };

typedef struct Rendezvous {
    int rank, size, local_rank;
    double seconds;           // that exchanges wait for the others
    char (*hosts)[RANK_HOST]; // (size) each rank's host as it calls itself, cut to fit
    /* (size) connections to each rank on rank 0; elsewhere only that to rank 0, at index 0. -1: none. */
    int *talks, *pulses;
} Rendezvous;

/* Collective. `facts` are lines of KEY=VALUE in which all ranks must agree, less than FACTS_BYTES:
 * version, configuration, a hash of the data. Waits up to `seconds` for the others. ERROR_USAGE where
 * ranks disagree (the message names rank, key and both values), where two processes have one rank, or
 * where a host does not exist; ERROR_DEVICE where ranks do not come (the message names them), ports are
 * taken, or rank 0 cannot be reached. What rank 0 finds wrong all ranks are told that have come: `told`,
 * which may be NULL, is then true on these. */
CHECKED Status rendezvous_open(const Identity *identity, const char *facts, double seconds, bool *told,
                               Rendezvous **rendezvous);
void rendezvous_close(Rendezvous *rendezvous);

/* Collective: all = every rank's `bytes` bytes at `mine`, in rank order. The same number on each rank.
 * ERROR_DEVICE when a rank is gone or does not come; the message names it. */
CHECKED Status rendezvous_gather(Rendezvous *rendezvous, const void *mine, size_t bytes, void *all);

/* Collective: OK where it is OK on every rank; else on those where it was OK an error of the same code that
 * says which rank failed and why. Takes `mine` over. What follows a step that can fail on one rank alone. */
CHECKED Status rendezvous_agree(Rendezvous *rendezvous, Status mine);

/* Collective: rank 0 gets what each rank has, of whatever size: parts[1] and on, to be freed with memory_free
 * also after an error. Elsewhere `parts` may be NULL. ERROR_DEVICE, ERROR_MEMORY. */
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

__END_DECLS
