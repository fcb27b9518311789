/* world: the ranks of a run, from start to end: it starts them, checks that their options agree, watches
 * them, and opens their communicator. With one rank it does nothing. */
#pragma once

#include "run/train_options.h"
#include "comm/comm.h"
#include "comm/rendezvous.h"

__BEGIN_DECLS

typedef struct {
    int rank, size;
    char device[24];        // device of this rank, for device_open; "": the options decide
    Rendezvous *rendezvous; // NULL with one rank, as are the members below
    Comm *comm;
    bool agreed; // all ranks know the error that this rank ends with
} World;

/* Finds out who has started this process, or starts the ranks itself (--gpus); must be called before any
 * thread is started and before CUDA. In the process that has started the ranks, returns with `done` when all
 * have ended, and their exit `code`. Ranks find each other here and compare their options. */
CHECKED Status world_open(World *world, const TrainOptions *options, const OptionSet *set, bool *done,
                          int *code);

/* Collective: an error of one rank becomes an error of all. Takes ownership of `mine`. */
CHECKED Status world_agree(World *world, Status mine);

/* Collective: opens the communicator on this rank's device. */
CHECKED Status world_connect(World *world, const TrainOptions *options, Device *device);

/* The state of a rank before its first step; `data` is feed_fingerprint's. */
typedef struct {
    uint64_t data;
    int64_t parameters, step, position;
} WorldStart;

/* Collective: ERROR_USAGE if the ranks' states differ; the message says which and how. */
CHECKED Status world_compare(World *world, const WorldStart *start);

/* Collective, after everything else: closes the communicator. */
CHECKED Status world_part(World *world);

/* Ends a rank's process because of an error, and informs the others. Does nothing with one rank. */
void world_fail(World *world, Status status);
void world_close(World *world);

__END_DECLS
