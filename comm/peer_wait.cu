/* How ranks of the peer engine wait for each other: a rank writes its count into every rank's memory, and each
 * looks at its own. */
#include "comm/peer_wait.cuh"

#include "kernels/cuda/launch.cuh"

enum { FLAG_THREADS = 32 };
static_assert((int)PEERS_MOST <= (int)FLAG_THREADS, "a thread for each rank");

/* Says that this rank has come, and waits until all have, or one has aborted. One block. */
__global__ static void wait_for_ranks(Addresses flags, const PeerPage *page, PeerTurns *turns, int lane,
                                      int rank, int size) {
    const uint32_t turn = turns->barriers[lane] + 1;
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other == 0) turns->barriers[lane] = turn;
    if (other >= size) return;
    __threadfence_system(); // what kernels and copies before this one have written
    store_release(&flags_at(flags, other)->barriers[lane][rank], turn);
    wait_for_flag(&flags_at(flags, rank)->barriers[lane][other], turn, page);
    __threadfence_system();
}

/* One block. What was posted is there: the copies before this kernel in the stream are over. */
__global__ static void say_posted(Addresses flags, PeerTurns *turns, int rank, int size) {
    const uint32_t turn = turns->posts + 1;
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other == 0) turns->posts = turn;
    if (other >= size) return;
    __threadfence_system();
    store_release(&flags_at(flags, other)->posts[rank], turn);
}

/* One block, launched early: it may wait beside the kernel before it, on which nothing here depends. */
__global__ static void wait_for_posts(const PeerFlags *flags, const PeerPage *page, PeerTurns *turns,
                                      int count, int size) {
    const uint32_t turn = turns->awaited + (uint32_t)count;
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other < size) wait_for_flag(&flags->posts[other], turn, page);
    __threadfence_system();
    wait_for_previous();
    if (other == 0) turns->awaited = turn;
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

Status peer_post(PeerComm *p, Lane lane) {
    say_posted<<<1, FLAG_THREADS, 0, lane_stream(p, lane)>>>(flags_of(p), &p->buffer->turns, p->rank,
                                                             p->size);
    return peer_launched(p, "say_posted");
}

Status peer_arrive(Comm *comm, int count) {
    PeerComm *p = peer_of(comm);
    return cuda_launch<true>(p->cuda, "wait_for_posts", wait_for_posts, dim3(1), dim3(FLAG_THREADS), 0,
                             &p->buffer->flags, p->device_page, &p->buffer->turns, count, p->size);
}
