/* mpi_module: the few MPI calls that mpi.c needs, compiled against the MPI of this machine into a module
 * of its own (mpi/module.c, comm_mpi.so), because each MPI has its own types behind the same names. The
 * program opens it when there are CPU ranks, and so starts where no MPI is. */
#pragma once

#include "comm/identity.h"

#include <stddef.h>

enum { MPI_MODULE_VERSION = 2, MPI_MODULE_NAME = 64 };

/* The functions answer with 0, or with an MPI error that `error` explains. Sizes are below 2^31. */
typedef struct {
    int version;                                                   // MPI_MODULE_VERSION of the build
    int (*open)(int *rank, int *size, char name[MPI_MODULE_NAME]); // MPI_Init_thread, once; "Open MPI v4.1.4"
    int (*alltoall)(const void *from, void *to, size_t bytes);     // bytes for each rank
    int (*allgather)(const void *from, void *to, size_t bytes);    // bytes of each rank
    int (*broadcast)(void *data, size_t bytes, int root);
    int (*barrier)(void);
    void (*abort)(int code); // does not return
    void (*close)(void);     // MPI_Finalize, once
    void (*error)(int error, char *text, size_t room);
} MpiModule;

/* The module's only symbol. */
#define MPI_MODULE_SYMBOL "comm_mpi_module"
extern const MpiModule comm_mpi_module;

/* The module of this build, or FUSEBOX_MPI. ERROR_DEVICE where there is none. It stays loaded. */
CHECKED Status mpi_load(const MpiModule **mpi);
CHECKED Status mpi_check(const MpiModule *mpi, int error, const char *what);

/* ERROR_USAGE where MPI takes this rank for another. */
CHECKED Status mpi_start(const MpiModule *mpi, int rank, int size, char name[MPI_MODULE_NAME]);

/* Collective, of ranks that MPI has started: rank 0 listens, and the others know where, and a token that
 * nobody else can know. */
CHECKED Status mpi_meet(Identity *identity, const MpiModule **mpi);
