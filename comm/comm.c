#include "base/checked.h"
#include "comm/comm_internal.h"

#include "base/memory.h"
#include "comm/rendezvous.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PART_ELEMENTS = 64 };

/* ---- opening ---- */

typedef Status (*OpenEngine)(const CommSetup *setup, Comm **comm);

/* peer if all GPUs are in one host and reach each other's memory, else nccl. All ranks choose alike, since
 * opening fails on all ranks or on none. */
static Status open_for_gpus(const CommSetup *setup, Comm **comm) {
    const Rendezvous *r = setup->rendezvous;
    bool one_host = true;
    for (int rank = 1; rank < r->size; rank++)
        one_host = one_host && strcmp(r->hosts[rank], r->hosts[0]) == 0;
    if (!one_host || !comm_open_peer) return comm_open_nccl(setup, comm);
    Status status = comm_open_peer(setup, comm);
    if (!status) return OK;
    status_free(status);
    return comm_open_nccl(setup, comm);
}

static Status choose_engine(const CommSetup *setup, OpenEngine *open) {
    const bool cpu = setup->device->backend == BACKEND_CPU;
    const struct {
        const char *name;
        OpenEngine open;
    } engines[] = {[COMM_AUTO] = {"auto", cpu ? comm_open_mpi : open_for_gpus},
                   [COMM_NCCL] = {"nccl", comm_open_nccl},
                   [COMM_PEER] = {"peer", comm_open_peer},
                   [COMM_MPI] = {"mpi", comm_open_mpi}},
      *chosen = &engines[setup->engine];
    *open = chosen->open;
    if (*open == comm_open_mpi && !cpu)
        return fail(ERROR_USAGE, "MPI is for ranks on the CPU; for GPUs choose nccl or peer");
    if (*open != comm_open_mpi && cpu)
        return fail(ERROR_USAGE, "%s is for GPUs; ranks on the CPU need mpi", chosen->name);
    return *open ? OK : fail(ERROR_DEVICE, "this build has no CUDA, which %s needs", chosen->name);
}

Status comm_open(const CommSetup *setup, Comm **comm) {
    Rendezvous *r = setup->rendezvous;
    OpenEngine open;
    *comm = NULL;
    TRY(choose_engine(setup, &open));
    TRY(open(setup, comm));
    Comm *c = *comm;
    c->rank = r->rank;
    c->size = r->size;
    c->device = setup->device;
    c->rendezvous = r;
    return OK;
}

void comm_close(Comm *comm) {
    if (comm) comm->engine->close(comm);
}

/* ---- collectives ---- */

int64_t comm_padded(int size, int64_t count) {
    const int64_t step = (int64_t)size * PART_ELEMENTS;
    return pieces(count, step) * step;
}

Tensor comm_piece(const Comm *comm, Tensor whole) {
    const int64_t count = tensor_count(whole) / comm->size;
    return tensor_view((char *)whole.data + (size_t)(comm->rank * count) * dtype_size(whole.dtype),
                       whole.dtype, shape1(count));
}

typedef enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, COLLECTIVE_COUNT } Collective;

static const char *const names[COLLECTIVE_COUNT] = {"all-reduce", "reduce-scatter", "all-gather"};

/* Checks a collective on `whole`, and notes it for the watch. */
static Status enter(Comm *comm, Collective which, Tensor whole, bool sums) {
    if (!tensor_dense(whole)) return fail(ERROR_INTERNAL, "%s: the tensor is not dense", names[which]);
    bool wide = comm->device->backend == BACKEND_CPU || which == ALL_REDUCE;
    if (sums && whole.dtype != F32 && whole.dtype != BF16 && (whole.dtype != F64 || !wide))
        return fail(ERROR_INTERNAL, "%s: %s is not added on this device", names[which],
                    dtype_name(whole.dtype));
    heartbeat_note(comm->rendezvous, "%s of %" PRId64 " %s", names[which], tensor_count(whole),
                   dtype_name(whole.dtype));
    return OK;
}

static Status check_piece(const Comm *comm, Collective which, Tensor piece, Tensor whole) {
    const bool fits = tensor_dense(piece) && piece.dtype == whole.dtype &&
                      tensor_count(piece) * comm->size == tensor_count(whole);
    const size_t bytes = fits ? tensor_bytes(piece) : 0;
    const char *own = (const char *)whole.data + (size_t)comm->rank * bytes, *at = piece.data,
               *start = whole.data;
    if (!fits)
        return fail(ERROR_INTERNAL, "%s: %" PRId64 " elements are not one of %d equal parts of %" PRId64,
                    names[which], tensor_count(piece), comm->size, tensor_count(whole));
    if (at != own && at + bytes > start && at < start + tensor_bytes(whole))
        return fail(ERROR_INTERNAL, "%s: the piece overlaps the whole, and is not this rank's part of it",
                    names[which]);
    return OK;
}

Status comm_all_reduce(Comm *comm, Tensor t, Lane lane) {
    TRY(enter(comm, ALL_REDUCE, t, true));
    return comm->engine->all_reduce(comm, t.data, tensor_count(t), t.dtype, lane);
}

Status comm_reduce_scatter(Comm *comm, Tensor whole, Tensor piece, Lane lane) {
    TRY(check_piece(comm, REDUCE_SCATTER, piece, whole));
    TRY(enter(comm, REDUCE_SCATTER, whole, true));
    return comm->engine->reduce_scatter(comm, whole.data, piece.data, tensor_count(piece), whole.dtype, lane);
}

Status comm_all_gather(Comm *comm, Tensor piece, Tensor whole, Lane lane) {
    TRY(check_piece(comm, ALL_GATHER, piece, whole));
    TRY(enter(comm, ALL_GATHER, whole, false));
    return comm->engine->all_gather(comm, piece.data, whole.data, tensor_bytes(piece), lane);
}

Status comm_scatter(Comm *comm, int slot, Tensor whole, Tensor arrivals, Lane lane) {
    const Tensor piece = comm_piece(comm, whole);
    if (!comm->engine->scatter) return comm_reduce_scatter(comm, whole, piece, lane);
    TRY(enter(comm, REDUCE_SCATTER, whole, true));
    return comm->engine->scatter(comm, slot, whole.data, arrivals.data, tensor_bytes(piece), lane);
}

Status comm_spread(Comm *comm, int slot, Tensor whole, Lane lane) {
    const Tensor piece = comm_piece(comm, whole);
    if (!comm->engine->spread) return comm_all_gather(comm, piece, whole, lane);
    TRY(enter(comm, ALL_GATHER, whole, false));
    return comm->engine->spread(comm, slot, whole.data, tensor_bytes(piece), lane);
}

Status comm_arrive(Comm *comm, int first, int count) {
    return comm->engine->arrive && count ? comm->engine->arrive(comm, first, count) : OK;
}

Status comm_clear(Comm *comm) {
    return comm->engine->clear ? comm->engine->clear(comm) : OK;
}

Status comm_sum(Comm *comm, Tensor whole, Tensor arrivals) {
    if (!comm->engine->sum) return OK;
    const int64_t count = tensor_count(whole) / comm->size;
    return comm->engine->sum(comm, whole.data, arrivals.data, count, whole.dtype);
}

Status comm_barrier(Comm *comm) {
    heartbeat_note(comm->rendezvous, "barrier");
    if (comm->engine->barrier) return comm->engine->barrier(comm);
    OWNED char *all = memory_allocate((size_t)comm->size);
    return rendezvous_gather(comm->rendezvous, "", 1, all);
}

Status comm_share(Comm *comm, void *memory, size_t bytes) {
    return comm->engine->share ? comm->engine->share(comm, memory, bytes) : OK;
}

Status comm_unshare(Comm *comm, void *memory) {
    return comm->engine->unshare ? comm->engine->unshare(comm, memory) : OK;
}

Status comm_record(Comm *comm, Lane lane, Event *event) {
    if (comm->engine->record) return comm->engine->record(comm, lane, event);
    return comm->device->event_record(comm->device, event);
}

Status comm_wait(Comm *comm, Lane lane, Event *event) {
    return comm->engine->wait ? comm->engine->wait(comm, lane, event) : OK;
}

Status comm_check(Comm *comm) {
    return comm->engine->check ? comm->engine->check(comm) : OK;
}

void comm_abort(Comm *comm) {
    comm->engine->abort(comm);
}
