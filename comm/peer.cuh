/* peer: declarations of the peer engine. GPUs of one host map each other's memory by CUDA IPC, and read and
 * write it directly. This memory also contains the flags by which they wait for each other. */
#pragma once

#include "comm/comm_internal.h"
#include "comm/lanes.h"
#include "comm/rendezvous.h"
#include "kernels/device/cuda.cuh"

enum {
    PEERS_MOST = 16,
    PEER_BUFFER = 16 << 20, // bytes of each rank's own buffer, for tensors that are not shared
    PEER_SMALL = 1 << 20,   // bytes of the largest tensor that is added in one launch
    PEER_COPIES = 4,        // copy streams of each lane, with more than two ranks
};

/* A page of host memory that all processes share; initially zeros. */
struct PeerPage {
    uint32_t aborted; // set by any rank
};

/* How often each rank has reached a barrier or a small sum: rank r writes element r in every rank's
 * memory. */
struct PeerFlags {
    uint32_t barriers[LANE_COUNT][PEERS_MOST], smalls[LANE_COUNT][PEERS_MOST];
};

/* This rank's own counts, in device memory, so that they grow when a CUDA graph is replayed. */
struct PeerTurns {
    uint32_t barriers[LANE_COUNT], smalls[LANE_COUNT];
};

/* Each rank's memory that the others map; initially zeros. */
struct PeerBuffer {
    char lanes[LANE_COUNT][PEER_BUFFER / LANE_COUNT];
    char smalls[LANE_COUNT][2][PEER_SMALL]; // two buffers in alternation: one may be written while the other
                                            // is read
    uint32_t posted[COMM_SLOTS];            // 1: this rank's data of the slot has arrived
    PeerFlags flags;
    PeerTurns turns;
};

/* An address in every rank's memory. */
struct Addresses {
    char *at[PEERS_MOST];
};

/* An allocation that all ranks share (comm_share): this rank's, and the mappings of the others'. */
struct PeerRegion {
    char *base;
    size_t bytes;
    char *peers[PEERS_MOST]; // at this rank's index: `base`
    PeerRegion *next;
};

struct PeerComm {
    Comm base;
    int rank, size;
    Rendezvous *rendezvous;
    CudaDevice *cuda;
    Lanes lanes;
    PeerPage *page;        // mapped into this process
    PeerPage *device_page; // the same page's address on the GPU
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

/* The address of `memory` in each rank's mapping of the region, plus rank * stride bytes. */
Addresses peer_places(const PeerComm *p, const PeerRegion *region, const void *memory, size_t stride);

/* OK, or the error of the launch of `what`. */
CHECKED Status peer_launched(PeerComm *p, const char *what);

/* A barrier of the ranks' lanes. */
CHECKED Status peer_barrier(PeerComm *p, Lane lane);
/* peer_post marks a slot when the lane's work so far is done, peer_arrive (comm_internal.h) waits for the
 * marks, and peer_clear removes all marks. */
CHECKED Status peer_post(PeerComm *p, int slot, Lane lane);
CHECKED Status peer_arrive(Comm *comm, int first, int count);
CHECKED Status peer_clear(Comm *comm);

/* to[i] = from.at[0][i] + from.at[1][i] + ..., in this order. `to` may be one of the `from`. */
CHECKED Status peer_add(PeerComm *p, const Addresses &from, int64_t count, Dtype dtype, void *to, Lane lane);
/* data = the sum of all ranks' data, at most PEER_SMALL bytes, in one launch. */
CHECKED Status peer_add_small(PeerComm *p, void *data, int64_t count, Dtype dtype, Lane lane);

/* Collective: maps every rank's allocation; unmaps it. */
CHECKED Status peer_share(Comm *comm, void *memory, size_t bytes);
CHECKED Status peer_unshare(Comm *comm, void *memory);

void peer_close(Comm *comm);

/* Collective: makes the shared page. It has no name, so nothing is left if a rank is killed. */
CHECKED Status peer_page_open(PeerComm *p);
void peer_page_close(PeerComm *p);

extern const CommEngine peer_engine;
