/* identity: who a rank is, by the word of whoever started it, which stands in the environment:
 *
 *     started by            rank, size, local rank                      rank 0's host and port
 *     torchrun              RANK, WORLD_SIZE, LOCAL_RANK                MASTER_ADDR, MASTER_PORT + 1
 *     Open MPI              OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK    MPI says (mpi_module.h)
 *     PMI (MPICH, Hydra)    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID         MPI says
 *     Slurm (srun)          SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID   first of SLURM_JOB_NODELIST
 *     nobody                rank 0 of 1
 *
 * The first of them that is there counts; launch.h makes the identities of the ranks that it forks. On
 * MASTER_PORT torchrun listens itself. MASTER_ADDR and MASTER_PORT, where they are set, count before what
 * follows from Slurm. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

enum { HOST_TEXT = 256 };

typedef struct {
    const char *starter; // "torchrun", ...; NULL: nobody, there is one rank
    int rank, size, local_rank;
    bool mpi;             // MPI has started it, and can say where rank 0 is
    char host[HOST_TEXT]; // where rank 0 listens (wire.h); on this host alone where all ranks are here
    int port;             // the first that rank 0 tries to listen on; see rendezvous.h
    int listener;         // a socket of rank 0 that listens there already, or -1
    uint64_t token;       // the same on all ranks of this run, and hardly of another
} Identity;

/* ERROR_USAGE where a variable is missing, is not a number or contradicts another: the message names it. The
 * token follows from what the starter says of the run, and from FUSEBOX_TOKEN. */
CHECKED Status identity_read(Identity *identity);

CHECKED Status identity_random(uint64_t *token);

/* The first host of Slurm's list: "gpu3" of "gpu3,gpu4", "node01" of "node[01-04,07],other",
 * "rack2-n08" of "rack[2,4]-n[08-09]". ERROR_FORMAT for what is not such a list or does not fit. */
CHECKED Status nodelist_first(const char *list, char host[HOST_TEXT]);

__END_DECLS
