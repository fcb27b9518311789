/* peer: what the files of the peer engine share. GPUs of one host read and write each other's memory, which
 * CUDA IPC maps. There lie the flags, too, by which they wait for each other. */
#pragma once

#include "comm/comm_internal.h"
#include "comm/lanes.h"
#include "comm/rendezvous.h"
#include "kernels/device/cuda.cuh"

enum {
    PEERS_MOST = 16,
    PEER_BUFFER = 16 << 20, // bytes of each rank's own buffer, for tensors that are not shared
    PEER_SMALL = 1 << 20,   // bytes of what is added in one launch
    PEER_COPIES = 4,        // streams of copies beside each lane, where there are several others
};

/* The page of host memory that all processes share, of zeros at first. */
struct PeerPage {
    uint32_t aborted; // by any rank
};

/* How often each rank has come: rank r writes the r-th of every rank's. */
struct PeerFlags {
    uint32_t barriers[LANE_COUNT][PEERS_MOST], smalls[LANE_COUNT][PEERS_MOST];
};

/* This rank's own counts. They are in device memory so that a graph that is replayed counts on. */
struct PeerTurns {
    uint32_t barriers[LANE_COUNT], smalls[LANE_COUNT];
};

/* Memory of each rank that the others map, of zeros at first. */
struct PeerBuffer {
    char lanes[LANE_COUNT][PEER_BUFFER / LANE_COUNT];
    char smalls[LANE_COUNT][2][PEER_SMALL]; // by turns: while one is still read the other may be written
    uint32_t posted[COMM_SLOTS];            // 1: what this rank has posted there has come
    PeerFlags flags;
    PeerTurns turns;
};

/* A place in every rank's memory. */
struct Addresses {
    char *at[PEERS_MOST];
};

/* Memory that every rank has told of: an allocation of this rank, and where the others' are mapped here. */
struct PeerRegion {
    char *base;
    size_t bytes;
    char *peers[PEERS_MOST]; // at this rank's place its own
    PeerRegion *next;
};

struct PeerComm {
    Comm base;
    int rank, size;
    Rendezvous *rendezvous;
    CudaDevice *cuda;
    Lanes lanes;
    PeerPage *page;        // mapped here
    PeerPage *device_page; // the same, as this GPU sees it
    PeerRegion *regions;
    PeerBuffer *buffer; // in device memory
    cudaStream_t copies[LANE_COUNT][PEER_COPIES];
    cudaEvent_t before[LANE_COUNT], after[LANE_COUNT][PEER_COPIES];
};

static inline PeerComm *peer_of(Comm *comm) {
    return reinterpret_cast<PeerComm *>(comm);
}

static inline cudaStream_t lane_stream(const PeerComm *p, Lane lane) {
    return static_cast<cudaStream_t>(p->lanes.streams[lane]);
}

/* The region that holds [memory, memory + bytes), or NULL. */
PeerRegion *peer_find(const PeerComm *p, const void *memory, size_t bytes);

/* Where each rank has what this one has at `memory`; `stride` is added for each rank. */
Addresses peer_places(const PeerComm *p, const PeerRegion *region, const void *memory, size_t stride);

/* OK, or what the launch of `what` has failed with. */
CHECKED Status peer_launched(PeerComm *p, const char *what);

/* What follows in the lane waits until all ranks' lanes have come here. */
CHECKED Status peer_barrier(PeerComm *p, Lane lane);
/* Marks a slot when what the lane holds so far has come to the other ranks; what peer_arrive
 * (comm_internal.h) waits for; and unmarks all. */
CHECKED Status peer_post(PeerComm *p, int slot, Lane lane);
CHECKED Status peer_arrive(Comm *comm, int first, int count);
CHECKED Status peer_clear(Comm *comm);

/* to[i] = from.at[0][i] + from.at[1][i] + ..., from the left. `to` may be one of them. */
CHECKED Status peer_add(PeerComm *p, const Addresses &from, int64_t count, Dtype dtype, void *to, Lane lane);
/* The sum of all ranks' data, of up to PEER_SMALL bytes, in one launch. */
CHECKED Status peer_add_small(PeerComm *p, void *data, int64_t count, Dtype dtype, Lane lane);

/* Collective: maps every rank's allocation here; and undoes that. */
CHECKED Status peer_share(Comm *comm, void *memory, size_t bytes);
CHECKED Status peer_unshare(Comm *comm, void *memory);

void peer_close(Comm *comm);

/* Collective: makes the shared page. It has no name, so that nothing stays behind whoever is killed. */
CHECKED Status peer_page_open(PeerComm *p);
void peer_page_close(PeerComm *p);

extern const CommEngine peer_engine;
