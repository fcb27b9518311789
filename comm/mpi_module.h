/* mpi_module: the MPI calls that mpi.c needs. They are compiled against this machine's MPI into a separate
 * module (mpi/module.c, comm_mpi.so), because every MPI defines its own types. The program loads the module
 * only for ranks on the CPU and for ranks started by mpirun. */
#pragma once

#include "comm/identity.h"

#include <stddef.h>

enum { MPI_MODULE_VERSION = 2, MPI_MODULE_NAME = 64 };

/* The functions return 0, or an MPI error that `error` explains. Sizes are below 2^31. */
typedef struct {
    int version;                                                   // MPI_MODULE_VERSION of the build
    int (*open)(int *rank, int *size, char name[MPI_MODULE_NAME]); // MPI_Init_thread, once; "Open MPI v4.1.4"
    int (*alltoall)(const void *from, void *to, size_t bytes);     // `bytes` to each rank
    int (*allgather)(const void *from, void *to, size_t bytes);    // `bytes` from each rank
    int (*broadcast)(void *data, size_t bytes, int root);
    int (*barrier)(void);
    void (*abort)(int code); // does not return
    void (*close)(void);     // MPI_Finalize, once
    void (*error)(int error, char *text, size_t room);
} MpiModule;

/* The module's only symbol. */
#define MPI_MODULE_SYMBOL "comm_mpi_module"
extern const MpiModule comm_mpi_module;

/* Loads FUSEBOX_MPI, or this build's module, for good. ERROR_DEVICE if there is none. */
CHECKED Status mpi_load(const MpiModule **mpi);
CHECKED Status mpi_check(const MpiModule *mpi, int error, const char *what);

/* Initializes MPI. ERROR_USAGE if MPI gives this process another rank or size. */
CHECKED Status mpi_start(const MpiModule *mpi, int rank, int size, char name[MPI_MODULE_NAME]);

/* Collective, for ranks that MPI has started: all ranks get rank 0's host and port, and a random token. */
CHECKED Status mpi_share_identity(Identity *identity, const MpiModule **mpi);
