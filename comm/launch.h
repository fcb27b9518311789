/* launch: starts the ranks of a run on this host, and ends with them. */
#pragma once

#include "comm/identity.h"

typedef struct {
    const char *program; // what messages on standard error begin with
    int ranks;
    /* Once one rank has failed the others have `grace` seconds to end by themselves, as they do when they
     * notice; then they get SIGTERM, and as many seconds later SIGKILL. */
    double grace;
} Launch;

/* Forks the ranks. Returns in each of them at once, with its identity; and in the launcher when all have
 * ended, with an identity of nobody (`starter` is NULL) and the exit code: 0 when all have ended with 0; else
 * that of the first rank that failed with another than ERROR_DEVICE, which is what ranks end with that have
 * lost another; ERROR_DEVICE if there is none, or a signal has killed one; after a signal to the launcher
 * that a rank has died of, 128 + it.
 *
 * SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the ranks, which are process groups of
 * their own, so that Ctrl-C reaches them once. The kernel kills the ranks if the launcher is killed, and
 * the launcher what a rank leaves behind in its group.
 *
 * To be called before anything has started a thread (a parallel region, too) or called CUDA: neither
 * survives a fork. ERROR_DEVICE where there is no socket, ERROR_MEMORY where no process can be forked. */
CHECKED Status launch(const Launch *launch, Identity *identity, int *code);

/* GPUs that a process started here can use, found out in a process of its own; 0 too where there is no
 * driver. Under the same conditions. */
CHECKED Status launch_count_gpus(int *count);
