#include "comm/mpi_module.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int open_mpi(int *rank, int *size, char name[MPI_MODULE_NAME]) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int provided, length, started, error = MPI_Initialized(&started);
    if (error == MPI_SUCCESS && !started) error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (error != MPI_SUCCESS) return error;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if ((error = MPI_Comm_rank(MPI_COMM_WORLD, rank)) != MPI_SUCCESS) return error;
    if ((error = MPI_Comm_size(MPI_COMM_WORLD, size)) != MPI_SUCCESS) return error;
    if ((error = MPI_Get_library_version(library, &length)) != MPI_SUCCESS) return error;
    snprintf(name, MPI_MODULE_NAME, "%.*s", (int)strcspn(library, ",\n"), library);
    return 0;
}

static int alltoall(const void *from, void *to, size_t bytes) {
    return MPI_Alltoall(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int allgather(const void *from, void *to, size_t bytes) {
    return MPI_Allgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int broadcast(void *data, size_t bytes, int root) {
    return MPI_Bcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static int barrier(void) {
    return MPI_Barrier(MPI_COMM_WORLD);
}

static void abort_mpi(int code) {
    (void)MPI_Abort(MPI_COMM_WORLD, code);
}

static void close_mpi(void) {
    int ended;
    if (MPI_Finalized(&ended) == MPI_SUCCESS && !ended) (void)MPI_Finalize();
}

static void error_text(int error, char *text, size_t room) {
    char message[MPI_MAX_ERROR_STRING];
    int length;
    if (MPI_Error_string(error, message, &length) != MPI_SUCCESS)
        snprintf(message, sizeof message, "error %d", error);
    snprintf(text, room, "%s", message);
}

const MpiModule comm_mpi_module = {.version = MPI_MODULE_VERSION,
                                   .open = open_mpi,
                                   .alltoall = alltoall,
                                   .allgather = allgather,
                                   .broadcast = broadcast,
                                   .barrier = barrier,
                                   .abort = abort_mpi,
                                   .close = close_mpi,
                                   .error = error_text};
