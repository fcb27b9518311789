/* The engine between CPU processes. */
#include "comm/comm_internal.h"

#include "base/bfloat16.h"
#include "base/memory.h"
#include "comm/mpi_module.h"
#include "comm/rendezvous.h"

#include <stdio.h>
#include <string.h>

/* MPI moves bytes; sums are computed here, in rank order. Each rank receives its slice of every rank's tensor
 * (MPI_Alltoall), adds the slices, and sends the sum to all (MPI_Allgather). Two buffers of STAGING bytes
 * hold the slices, so memory does not grow with the model. */

enum { STAGING = 8 << 20, ALONE_MOST = 1 << 14 };

typedef struct {
    Comm base;
    const MpiModule *mpi;
    char *out, *in; // (STAGING) bytes each
    size_t slice;   // bytes of one rank's slice in a buffer
} Mpi;

static Mpi *mpi_of(Comm *comm) {
    return (Mpi *)comm;
}

/* ---- sums ---- */

/* sum[i] = slices[0][i] + slices[1][i] + ..., in this order. sum may be slices[0]. */
static void sum_f32(const float *slices, int ranks, int64_t count, float *sum) {
#pragma omp parallel for simd schedule(static) if (count > ALONE_MOST)
    for (int64_t i = 0; i < count; i++) {
        float total = slices[i];
        for (int r = 1; r < ranks; r++) total += slices[r * count + i];
        sum[i] = total;
    }
}

static void sum_f64(const double *slices, int ranks, int64_t count, double *sum) {
#pragma omp parallel for simd schedule(static) if (count > ALONE_MOST)
    for (int64_t i = 0; i < count; i++) {
        double total = slices[i];
        for (int r = 1; r < ranks; r++) total += slices[r * count + i];
        sum[i] = total;
    }
}

static void sum_bf16(const uint16_t *slices, int ranks, int64_t count, uint16_t *sum) {
#pragma omp parallel for schedule(static) if (count > ALONE_MOST)
    for (int64_t i = 0; i < count; i++) {
        float total = bfloat16_to_float(slices[i]);
        for (int r = 1; r < ranks; r++) total += bfloat16_to_float(slices[r * count + i]);
        sum[i] = bfloat16_from_float(total);
    }
}

/* Sends each rank its slice of `out`, and writes the sum of this rank's slices to the start of `in`. */
static Status sum_slices(Mpi *m, int64_t count, Dtype dtype) {
    const int ranks = m->base.size;
    TRY(mpi_check(m->mpi, m->mpi->alltoall(m->out, m->in, (size_t)count * dtype_size(dtype)),
                  "MPI_Alltoall"));
    if (dtype == BF16)
        sum_bf16((uint16_t *)m->in, ranks, count, (uint16_t *)m->in);
    else if (dtype == F64)
        sum_f64((double *)m->in, ranks, count, (double *)m->in);
    else
        sum_f32((float *)m->in, ranks, count, (float *)m->in);
    return OK;
}

/* ---- collectives ---- */

static Status mpi_reduce_scatter(Comm *comm, const void *whole, void *piece, int64_t count, Dtype dtype,
                                 Lane lane) {
    Mpi *m = mpi_of(comm);
    const size_t element = dtype_size(dtype);
    const int64_t most = (int64_t)(m->slice / element);
    (void)lane;
    for (int64_t first = 0; first < count; first += most) {
        const int64_t now = count - first < most ? count - first : most;
        for (int r = 0; r < comm->size; r++)
            memcpy(m->out + (size_t)(r * now) * element,
                   (const char *)whole + (size_t)(r * count + first) * element, (size_t)now * element);
        TRY(sum_slices(m, now, dtype));
        memcpy((char *)piece + (size_t)first * element, m->in, (size_t)now * element);
    }
    return OK;
}

/* Each round takes at most one slice per rank; the last round's slices are shorter, and padded with zeros. */
static Status mpi_all_reduce(Comm *comm, void *data, int64_t count, Dtype dtype, Lane lane) {
    Mpi *m = mpi_of(comm);
    const size_t element = dtype_size(dtype);
    const int64_t most = (int64_t)(m->slice / element) * comm->size;
    (void)lane;
    for (int64_t first = 0; first < count; first += most) {
        const int64_t now = count - first < most ? count - first : most,
                      each = (now + comm->size - 1) / comm->size;
        char *at = (char *)data + (size_t)first * element;
        memcpy(m->out, at, (size_t)now * element);
        memset(m->out + (size_t)now * element, 0, (size_t)(each * comm->size - now) * element);
        TRY(sum_slices(m, each, dtype));
        memcpy(m->out, m->in, (size_t)each * element);
        TRY(mpi_check(m->mpi, m->mpi->allgather(m->out, m->in, (size_t)each * element), "MPI_Allgather"));
        memcpy(at, m->in, (size_t)now * element);
    }
    return OK;
}

static Status mpi_all_gather(Comm *comm, const void *piece, void *whole, size_t bytes, Lane lane) {
    Mpi *m = mpi_of(comm);
    (void)lane;
    for (size_t first = 0; first < bytes; first += m->slice) {
        const size_t now = bytes - first < m->slice ? bytes - first : m->slice;
        memcpy(m->out, (const char *)piece + first, now);
        TRY(mpi_check(m->mpi, m->mpi->allgather(m->out, m->in, now), "MPI_Allgather"));
        for (int r = 0; r < comm->size; r++)
            memcpy((char *)whole + (size_t)r * bytes + first, m->in + (size_t)r * now, now);
    }
    return OK;
}

static Status mpi_barrier(Comm *comm) {
    const MpiModule *mpi = mpi_of(comm)->mpi;
    return mpi_check(mpi, mpi->barrier(), "MPI_Barrier");
}

static void mpi_abort(Comm *comm) {
    mpi_of(comm)->mpi->abort(ERROR_DEVICE);
}

static void mpi_close(Comm *comm) {
    Mpi *m = mpi_of(comm);
    m->mpi->close();
    memory_free(m->out);
    memory_free(m->in);
    memory_free(m);
}

static const CommEngine engine = {.name = "mpi",
                                  .all_reduce = mpi_all_reduce,
                                  .reduce_scatter = mpi_reduce_scatter,
                                  .all_gather = mpi_all_gather,
                                  .barrier = mpi_barrier,
                                  .abort = mpi_abort,
                                  .close = mpi_close};

/* ---- opening ---- */

Status comm_open_mpi(const CommSetup *setup, Comm **comm) {
    Rendezvous *r = setup->rendezvous;
    char name[MPI_MODULE_NAME];
    const MpiModule *module = NULL;
    TRY(rendezvous_agree(r, mpi_load(&module)));
    Mpi *m = memory_allocate(sizeof *m);
    *m = (Mpi){.base = {.engine = &engine, .rank_order = true}, .mpi = module};
    m->slice = STAGING / (size_t)r->size / 64 * 64;
    m->out = memory_reserve(STAGING);
    m->in = memory_reserve(STAGING);
    Status status =
        m->out && m->in && m->slice ? OK : fail(ERROR_MEMORY, "out of host memory for the communicator");
    if (!status) status = mpi_start(module, r->rank, r->size, name);
    if (status) {
        memory_free(m->out);
        memory_free(m->in);
        memory_free(m);
        return status;
    }
    snprintf(m->base.name, sizeof m->base.name, "MPI (%s)", name);
    *comm = &m->base;
    return OK;
}
