/* How ranks of the peer engine wait for each other. */
#include "comm/peer_wait.cuh"

#include "kernels/cuda/launch.cuh"

/* A rank writes its count into every rank's memory, and polls its own memory. */

enum { FLAG_THREADS = 32 };
static_assert((int)PEERS_MOST <= (int)FLAG_THREADS, "a thread for each rank");

/* Signals this rank's arrival, and waits until all ranks have arrived or one has aborted. One block. */
/* Anatomy. Parallel: over ranks, a thread each. Launch: one block of 32. Holds: 32 registers, no shared
 * memory. Occupancy: one block: its latency counts. Reads: flags of 4 bytes. Syncs: flags between the ranks,
 * one barrier of the block. Fusion: with the kernel behind it, whose every block would look at the flags. */
__global__ static void wait_for_ranks(Addresses flags, const PeerPage *page, PeerTurns *turns, int lane,
                                      int rank, int size) {
    const uint32_t turn = turns->barriers[lane] + 1;
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other == 0) turns->barriers[lane] = turn;
    if (other >= size) return;
    __threadfence_system(); // publishes the writes of earlier kernels and copies
    store_release(&flags_at(flags, other)->barriers[lane][rank], turn);
    wait_for_flag(&flags_at(flags, rank)->barriers[lane][other], turn, page);
    __threadfence_system();
}

/* One block, launched early: it may wait while the previous kernel still runs, because it does not depend on
 * that kernel. A rank marks its own memory, which the others poll. */
/* Anatomy. Parallel: over posts of the other ranks, a thread each. Launch: one block of 32. Holds: 28
 * registers, no shared memory. Occupancy: one block: its latency counts. Reads: flags of 4 bytes. Syncs:
 * flags between the ranks. Fusion: with the kernel behind it, whose every block would look at the flags. */
__global__ static void wait_for_posts(Addresses buffers, const PeerPage *page, int first, int count, int rank,
                                      int size) {
    for (int i = (int)threadIdx.x; i < count * size; i += FLAG_THREADS)
        if (i % size != rank)
            wait_for_flag(&reinterpret_cast<PeerBuffer *>(buffers.at[i % size])->posted[first + i / size], 1,
                          page);
    __threadfence_system();
    wait_for_previous();
}

/* Marks a slot: the copies before this kernel in the stream have arrived. */
/* Anatomy. Parallel: not at all. Launch: one thread. Holds: 8 registers, no shared memory. Occupancy: one
 * thread: its latency counts. Reads: nothing. Syncs: a fence of the system before the store. Fusion: with the
 * last kernel that writes what is posted. */
__global__ static void mark(uint32_t *slot) {
    __threadfence_system();
    store_release(slot, 1);
}

static Addresses flags_of(const PeerComm *p) {
    return peer_places(p, peer_find(p, p->buffer, sizeof *p->buffer), &p->buffer->flags, 0);
}

Status peer_launched(PeerComm *p, const char *what) {
    TRY(cuda_status(cudaGetLastError(), what));
    p->cuda->base.launches++;
    return OK;
}

Status peer_barrier(PeerComm *p, Lane lane) {
    wait_for_ranks<<<1, FLAG_THREADS, 0, lane_stream(p, lane)>>>(flags_of(p), p->device_page,
                                                                 &p->buffer->turns, lane, p->rank, p->size);
    return peer_launched(p, "wait_for_ranks");
}

static Addresses buffers_of(const PeerComm *p) {
    return peer_places(p, peer_find(p, p->buffer, sizeof *p->buffer), p->buffer, 0);
}

Status peer_post(PeerComm *p, int slot, Lane lane) {
    if (slot < 0 || slot >= COMM_SLOTS) return fail(ERROR_INTERNAL, "there is no slot %d", slot);
    mark<<<1, 1, 0, lane_stream(p, lane)>>>(&p->buffer->posted[slot]);
    return peer_launched(p, "mark");
}

Status peer_arrive(Comm *comm, int first, int count) {
    PeerComm *p = peer_of(comm);
    return cuda_launch<true>(p->cuda, "wait_for_posts", wait_for_posts, dim3(1), dim3(FLAG_THREADS), 0,
                             buffers_of(p), p->device_page, first, count, p->rank, p->size);
}

Status peer_clear(Comm *comm) {
    PeerComm *p = peer_of(comm);
    return p->cuda->base.fill(&p->cuda->base, p->buffer->posted, 0, sizeof p->buffer->posted);
}
