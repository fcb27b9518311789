/* peer: what the files of the peer engine share. GPUs of one host read each other's memory: CUDA IPC maps
 * it, a page of host memory that all processes share holds the flags by which they wait for each other. */
#pragma once

#include "comm/comm_internal.h"
#include "comm/lanes.h"
#include "comm/rendezvous.h"
#include "kernels/device/cuda.cuh"

enum {
    PEERS_MOST = 16,
    PEER_BUFFER = 16 << 20, // bytes of each rank's own buffer, for tensors that are not shared
    PEER_COPIES = 4,        // streams of copies beside each lane
};

/* One flag has a cache line of its own. */
struct PeerFlag {
    uint32_t turn; // barriers that this rank has come to
    uint32_t padding[31];
};

/* The shared page, of zeros at first. */
struct PeerPage {
    uint32_t aborted; // by any rank
    uint32_t padding[31];
    PeerFlag flags[LANE_COUNT][PEERS_MOST];
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
    char *buffer; // (PEER_BUFFER) shared, and behind it the turns
    uint32_t
        *turns; // (LANE_COUNT) this rank's barriers, in device memory: a graph that is replayed counts on
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

/* Collective: maps every rank's allocation here; and undoes that. */
CHECKED Status peer_share(Comm *comm, void *memory, size_t bytes);
CHECKED Status peer_unshare(Comm *comm, void *memory);

void peer_close(Comm *comm);

/* Collective: makes the shared page. It has no name, so that nothing stays behind whoever is killed. */
CHECKED Status peer_page_open(PeerComm *p);
void peer_page_close(PeerComm *p);

extern const CommEngine peer_engine;
