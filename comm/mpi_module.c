#define _GNU_SOURCE
#include "comm/mpi_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens FUSEBOX_MPI, else the module in the program's folder, else (for tests and tools) in the folder
 * above. */
static void *open_module(void) {
    char path[4096];
    const char *named = getenv("FUSEBOX_MPI");
    /* RTLD_GLOBAL: Open MPI's plug-ins resolve its symbols globally. */
    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_GLOBAL);
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    void *library = NULL;
    path[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2 && !library; up++) {
        char *slash = strrchr(path, '/');
        if (!slash) break;
        strcpy(slash, "/comm_mpi.so");
        if (access(path, F_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        *slash = 0;
    }
    (void)dlerror();
    return NULL;
}

Status mpi_load(const MpiModule **module) {
    void *library = open_module();
    const char *reason = library ? NULL : dlerror();
    if (!library && reason)
        return fail(
            ERROR_DEVICE,
            "ranks on the CPU and those that mpirun starts need MPI, and its module does not load: %s",
            reason);
    if (!library)
        return fail(ERROR_DEVICE,
                    "ranks on the CPU and those that mpirun starts need MPI, which this build is without: "
                    "install libopenmpi-dev and openmpi-bin, and build again");
    *module = dlsym(library, MPI_MODULE_SYMBOL); // it stays loaded: MPI does not start twice
    if (!*module || (*module)->version != MPI_MODULE_VERSION)
        return fail(ERROR_DEVICE, "comm_mpi.so is of another build: build again");
    return OK;
}

Status mpi_check(const MpiModule *mpi, int error, const char *what) {
    char text[256];
    if (error == 0) return OK;
    mpi->error(error, text, sizeof text);
    return fail(ERROR_DEVICE, "%s: %s", what, text);
}

Status mpi_start(const MpiModule *mpi, int rank, int size, char name[MPI_MODULE_NAME]) {
    int its_rank = -1, its_size = -1;
    TRY(mpi_check(mpi, mpi->open(&its_rank, &its_size, name), "MPI_Init_thread"));
    if (its_rank == rank && its_size == size) return OK;
    return fail(
        ERROR_USAGE,
        "MPI says that this is rank %d of %d, and who started it %d of %d: start ranks on the CPU with "
        "mpirun",
        its_rank, its_size, rank, size);
}

Status mpi_share_identity(Identity *identity, const MpiModule **mpi) {
    Identity first = *identity; // rank 0's
    char name[MPI_MODULE_NAME];
    TRY(mpi_load(mpi));
    TRY(mpi_start(*mpi, identity->rank, identity->size, name));
    if (first.rank == 0) TRY(identity_draw_token(&first));
    if (!*first.host) (void)gethostname(first.host, sizeof first.host - 1);
    TRY(mpi_check(*mpi, (*mpi)->broadcast(&first, sizeof first, 0), "MPI_Bcast"));
    memcpy(identity->host, first.host, sizeof first.host);
    identity->port = first.port;
    identity->token = first.token;
    return OK;
}
