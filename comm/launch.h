/* launch: starts the ranks of a run on this host, and ends with them. */
#pragma once

#include "comm/identity.h"

typedef struct {
    const char *program; // the prefix of messages on standard error
    int ranks;
    /* Seconds that the other ranks get to end by themselves after one has failed. Then they get SIGTERM, and
     * after the same time SIGKILL. */
    double grace;
} Launch;

/* Forks the ranks. Returns in each of them at once, with its identity; and in the launcher when all have
 * ended, with `identity->starter` NULL and an exit code:
 *
 *     0              all ranks ended with 0
 *     128 + signal   a rank died of a signal that the launcher had received
 *     a rank's       of the first that failed with another code than ERROR_DEVICE
 *     ERROR_DEVICE   a signal killed a rank, or all failed ranks ended with ERROR_DEVICE, because each lost
 *                    another rank
 *
 * SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the ranks. Each rank is a process group of
 * its own, so Ctrl-C reaches it once. If the launcher is killed, the kernel kills the ranks; if a rank ends,
 * the launcher kills what is left of its group.
 *
 * To be called before any thread (a parallel region, too) or CUDA: neither survives a fork. ERROR_MEMORY if a
 * process cannot be forked. */
CHECKED Status launch(const Launch *launch, Identity *identity, int *code);

/* The number of GPUs that a process started here can use, counted in a separate process; 0 without a driver.
 * The same conditions hold. */
CHECKED Status launch_count_gpus(int *count);
