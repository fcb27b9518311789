/* Opens and closes the peer engine, and maps memory of other ranks. */
#include "comm/peer.cuh"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- regions ---- */

PeerRegion *peer_find(const PeerComm *p, const void *memory, size_t bytes) {
    const char *at = static_cast<const char *>(memory);
    PeerRegion *region = p->regions;
    while (region && (at < region->base || at + bytes > region->base + region->bytes)) region = region->next;
    return region;
}

typedef struct {
    cudaIpcMemHandle_t handle;
    uint64_t bytes;
} Offer;

/* Maps the other ranks' allocations. */
static Status map_region(const PeerComm *p, const Offer *offers, PeerRegion *region) {
    for (int rank = 0; rank < p->size; rank++) {
        void *mapped = region->base;
        if (offers[rank].bytes != region->bytes)
            return fail(ERROR_INTERNAL, "rank %d shares %llu bytes, and rank %d %zu", rank,
                        (unsigned long long)offers[rank].bytes, p->rank, region->bytes);
        if (rank != p->rank) {
            cudaError_t error =
                cudaIpcOpenMemHandle(&mapped, offers[rank].handle, cudaIpcMemLazyEnablePeerAccess);
            char what[96];
            snprintf(what, sizeof what, "the GPU of rank %d cannot reach the memory of rank %d's", p->rank,
                     rank);
            TRY(cuda_status(error, what));
        }
        region->peers[rank] = static_cast<char *>(mapped);
    }
    return OK;
}

static void unmap_region(const PeerComm *p, PeerRegion *region) {
    for (int rank = 0; rank < p->size; rank++)
        if (rank != p->rank && region->peers[rank]) (void)cudaIpcCloseMemHandle(region->peers[rank]);
}

Status peer_share(Comm *comm, void *memory, size_t bytes) {
    PeerComm *p = peer_of(comm);
    Offer mine = {}, all[PEERS_MOST];
    PeerRegion *region = (PeerRegion *)memory_allocate(sizeof *region);
    Status status = cuda_status(cudaIpcGetMemHandle(&mine.handle, memory), "cudaIpcGetMemHandle");
    status = rendezvous_agree(p->rendezvous, status);
    mine.bytes = bytes;
    if (!status) status = rendezvous_gather(p->rendezvous, &mine, sizeof mine, all);
    if (!status) {
        region->base = static_cast<char *>(memory);
        region->bytes = bytes;
        status = rendezvous_agree(p->rendezvous, map_region(p, all, region));
        if (status) unmap_region(p, region);
    }
    if (status) {
        memory_free(region);
        return status;
    }
    region->next = p->regions;
    p->regions = region;
    return OK;
}

static Status synchronize(const PeerComm *p) {
    for (int lane = 0; lane < LANE_COUNT; lane++) CUDA_TRY(cudaStreamSynchronize(lane_stream(p, (Lane)lane)));
    return OK;
}

/* First all ranks stop reading, then all unmap. After that the owner may release the memory. */
static Status remove_region(PeerComm *p, PeerRegion **link) {
    PeerRegion *region = *link;
    Status status = rendezvous_agree(p->rendezvous, synchronize(p));
    *link = region->next;
    unmap_region(p, region);
    memory_free(region);
    return status ? status : rendezvous_agree(p->rendezvous, OK);
}

Status peer_unshare(Comm *comm, void *memory) {
    PeerComm *p = peer_of(comm);
    for (PeerRegion **link = &p->regions; *link; link = &(*link)->next)
        if ((*link)->base == memory) return remove_region(p, link);
    return fail(ERROR_INTERNAL, "this memory is not shared");
}

/* ---- opening and closing ---- */

/* Only for more than two ranks: streams may share a hardware queue, where a kernel that waits would block
 * work that another rank waits for. */
static Status make_copies(PeerComm *p) {
    for (int lane = 0; lane < LANE_COUNT && p->size > 2; lane++) {
        CUDA_TRY(cudaEventCreateWithFlags(&p->before[lane], cudaEventDisableTiming));
        for (int i = 0; i < PEER_COPIES; i++) {
            CUDA_TRY(cudaStreamCreateWithFlags(&p->copies[lane][i], cudaStreamNonBlocking));
            CUDA_TRY(cudaEventCreateWithFlags(&p->after[lane][i], cudaEventDisableTiming));
        }
    }
    return OK;
}

static void free_copies(PeerComm *p) {
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (p->before[lane]) (void)cudaEventDestroy(p->before[lane]);
        for (int i = 0; i < PEER_COPIES; i++) {
            if (p->copies[lane][i]) (void)cudaStreamDestroy(p->copies[lane][i]);
            if (p->after[lane][i]) (void)cudaEventDestroy(p->after[lane][i]);
        }
    }
}

static Status make_buffer(PeerComm *p) {
    Device *device = &p->cuda->base;
    void *memory;
    TRY(device->allocate(device, sizeof *p->buffer, &memory));
    p->buffer = static_cast<PeerBuffer *>(memory);
    TRY(device->fill(device, p->buffer, 0, sizeof *p->buffer));
    return device->synchronize(device);
}

static Status check_host(const Rendezvous *r) {
    if (r->size > PEERS_MOST)
        return fail(ERROR_USAGE, "the peer engine is for up to %d GPUs, and these are %d ranks: use nccl",
                    PEERS_MOST, r->size);
    for (int rank = 1; rank < r->size; rank++)
        if (strcmp(r->hosts[rank], r->hosts[0]) != 0)
            return fail(ERROR_USAGE,
                        "the peer engine is for one host, and rank 0 is on %s and rank %d on %s: use nccl",
                        r->hosts[0], rank, r->hosts[rank]);
    return OK;
}

static Status start(PeerComm *p, const CommSetup *setup) {
    Rendezvous *r = setup->rendezvous;
    TRY(check_host(r));
    TRY(rendezvous_agree(r, lanes_open(setup->device, &p->lanes)));
    if (!setup->share_gpu) TRY(lanes_distinct(&p->lanes, r));
    Status status = make_copies(p);
    if (!status) status = make_buffer(p);
    TRY(rendezvous_agree(r, status));
    TRY(peer_page_open(p));
    return peer_share(&p->base, p->buffer, sizeof *p->buffer);
}

static void release(PeerComm *p) {
    Device *device = &p->cuda->base;
    while (p->regions) { // after an error or an abort, regions are released without the other ranks
        PeerRegion *region = p->regions;
        p->regions = region->next;
        unmap_region(p, region);
        memory_free(region);
    }
    lanes_close(&p->lanes);
    free_copies(p);
    peer_page_close(p);
    if (p->buffer) device->release(device, p->buffer);
    memory_free(p);
}

void peer_close(Comm *comm) {
    PeerComm *p = peer_of(comm);
    Status status = OK;
    while (p->regions && !status && !p->page->aborted) status = remove_region(p, &p->regions);
    status_free(status); // nothing can be done for a lost rank
    release(p);
}

Status comm_open_peer(const CommSetup *setup, Comm **comm) {
    PeerComm *p = (PeerComm *)memory_allocate(sizeof *p);
    p->base.engine = &peer_engine;
    p->base.rank_order = true;
    p->base.posts = true;
    snprintf(p->base.name, sizeof p->base.name, "peers (CUDA IPC)");
    p->rendezvous = setup->rendezvous;
    p->rank = setup->rendezvous->rank;
    p->size = setup->rendezvous->size;
    p->cuda = reinterpret_cast<CudaDevice *>(setup->device);
    Status status = start(p, setup);
    if (status)
        release(p);
    else
        *comm = &p->base;
    return status;
}
