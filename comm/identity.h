/* identity: a rank's number and where it finds rank 0, from the environment that the launcher has set:
 *
 *     launcher              rank, size, local rank                      host of rank 0, port
 *     torchrun              RANK, WORLD_SIZE, LOCAL_RANK                MASTER_ADDR, MASTER_PORT + 1
 *     Open MPI              OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK    sent by MPI (mpi_module.h)
 *     PMI (MPICH, Hydra)    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID         sent by MPI
 *     Slurm (srun)          SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID   first of SLURM_JOB_NODELIST
 *     none                  rank 0 of 1
 *
 * The first launcher in this order whose variables are set counts. ./train --gpus makes its ranks' identities
 * itself (launch.h). torchrun listens on MASTER_PORT, so ranks use the next port. For the other launchers
 * MASTER_ADDR and MASTER_PORT are optional. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

enum { HOST_TEXT = 256 };
#define HOST_LOCAL "@fusebox" // where rank 0 listens if all ranks are on one host: a Unix socket (wire.h)

typedef struct {
    const char *starter; // "torchrun", ...; NULL: none, and one rank
    int rank, size, local_rank;
    bool mpi;             // MPI has started the rank
    char host[HOST_TEXT]; // address at which rank 0 listens; "": its host's name
    int port;             // the first port that rank 0 tries, see rendezvous.h; 0: it follows from the token
    uint64_t token;       // the same on all ranks of this run, and different from other runs'
} Identity;

/* ERROR_USAGE if a variable is missing, is not a number or contradicts another; the message names the
 * variable. The token is a hash of the launcher's variables that identify the run, and of FUSEBOX_TOKEN. */
CHECKED Status identity_read(Identity *identity);

/* Gives the run a random token, and a port that follows from it if the user has set none. */
CHECKED Status identity_draw_token(Identity *identity);

/* The first host of Slurm's list: "gpu3" of "gpu3,gpu4", "node01" of "node[01-04,07],other", "rack2-n08" of
 * "rack[2,4]-n[08-09]". ERROR_FORMAT for anything else, or a name that does not fit. */
CHECKED Status nodelist_first(const char *list, char host[HOST_TEXT]);

__END_DECLS
