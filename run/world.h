/* world: the ranks of a run, from the start of the first process to the end of the last: who has started
 * them, that they mean the same run, who watches them, and their communicator. With one rank all of it does
 * nothing. */
#pragma once

#include "run/train_options.h"
#include "comm/comm.h"
#include "comm/rendezvous.h"

__BEGIN_DECLS

typedef struct {
    int rank, size;
    char device[24];        // this rank's, for device_open; "": as the options say
    Rendezvous *rendezvous; // NULL with one rank, as what follows
    Comm *comm;
    bool agreed; // the error that this rank ends with is known to all
} World;

/* Reads who has started this process, or starts the ranks itself (--gpus); before anything has started a
 * thread or called CUDA. `done` in the process that has started them, when all have ended, with its exit
 * `code`. Ranks meet here and compare the options that were given. */
CHECKED Status world_open(World *world, const TrainOptions *options, const OptionSet *set, bool *done,
                          int *code);

/* Collective: what can fail on one rank alone fails on all. Takes `mine` over. */
CHECKED Status world_agree(World *world, Status mine);

/* Collective: the communicator on this rank's device. */
CHECKED Status world_connect(World *world, const TrainOptions *options, Device *device);

/* Where a rank stands before its first step; `data` is feed_fingerprint's. */
typedef struct {
    uint64_t data;
    int64_t parameters, step, position;
} WorldStart;

/* Collective: ERROR_USAGE where ranks do not stand at the same place; the message says which and how. */
CHECKED Status world_compare(World *world, const WorldStart *start);

/* Collective, after all else has come to its end: the communicator is gone afterwards. */
CHECKED Status world_part(World *world);

/* Ends a rank's process because of an error, which the others are told. Does nothing with one rank. */
void world_fail(World *world, Status status);
void world_close(World *world);

__END_DECLS
