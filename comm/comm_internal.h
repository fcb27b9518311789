/* comm_internal: the interface of the engines. comm.c has checked the arguments. */
#pragma once

#include "comm/comm.h"

__BEGIN_DECLS

typedef struct CommEngine {
    const char *name; // "nccl"
    Status (*all_reduce)(Comm *comm, void *data, int64_t count, Dtype dtype, Lane lane) CHECKED;
    /* `count`: elements of one rank's piece. */
    Status (*reduce_scatter)(Comm *comm, const void *whole, void *piece, int64_t count, Dtype dtype,
                             Lane lane) CHECKED;
    Status (*all_gather)(Comm *comm, const void *piece, void *whole, size_t bytes, Lane lane) CHECKED;
    /* The collectives in two halves; all NULL if the engine does not post. `count` and `bytes` are those of
     * one part. */
    Status (*scatter)(Comm *comm, int slot, const void *whole, void *arrivals, size_t bytes,
                      Lane lane) CHECKED;
    Status (*spread)(Comm *comm, int slot, void *whole, size_t bytes, Lane lane) CHECKED;
    Status (*arrive)(Comm *comm, int first, int count) CHECKED;
    Status (*sum)(Comm *comm, void *whole, const void *arrivals, int64_t count, Dtype dtype) CHECKED;
    Status (*clear)(Comm *comm) CHECKED;
    /* The next six may be NULL. Then the ranks wait in the rendezvous, no memory is shared, both lanes are one, and
     * enqueued work has no later errors. */
    Status (*barrier)(Comm *comm) CHECKED;
    Status (*share)(Comm *comm, void *memory, size_t bytes) CHECKED;
    Status (*unshare)(Comm *comm, void *memory) CHECKED;
    Status (*record)(Comm *comm, Lane lane, Event *event) CHECKED;
    Status (*wait)(Comm *comm, Lane lane, Event *event) CHECKED;
    Status (*check)(Comm *comm) CHECKED;
    void (*abort)(Comm *comm);
    void (*close)(Comm *comm);
} CommEngine;

/* Each function makes a communicator that begins with a Comm, and sets its engine, name and rank_order. */
CHECKED Status comm_open_mpi(const CommSetup *setup, Comm **comm);
CHECKED Status comm_open_nccl(const CommSetup *setup, Comm **comm);
bool nccl_found(void); // whether NCCL is installed on this machine
/* A weak symbol: NULL in a build without CUDA. */
__attribute__((weak)) CHECKED Status comm_open_peer(const CommSetup *setup, Comm **comm);

__END_DECLS
