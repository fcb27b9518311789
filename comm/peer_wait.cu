/* How ranks of the peer engine wait for each other: a rank writes its count into every rank's memory, and each
 * looks at its own. */
#include "comm/peer_wait.cuh"

#include "kernels/cuda/launch.cuh"

#include <cuda.h>

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

/* One block, launched early: it may wait beside the kernel before it, on which nothing here depends. A rank marks
 * its own memory, which the others look at. */
__global__ static void wait_for_posts(Addresses buffers, const PeerPage *page, int first, int count, int rank,
                                      int size) {
    for (int i = (int)threadIdx.x; i < count * size; i += FLAG_THREADS)
        if (i % size != rank)
            wait_for_flag(&reinterpret_cast<PeerBuffer *>(buffers.at[i % size])->posted[first + i / size], 1,
                          page);
    __threadfence_system();
    wait_for_previous();
}

/* Where the driver cannot: takes room on a multiprocessor for a moment. */
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

/* The driver's own write comes behind a fence for the whole system, and needs no multiprocessor. */
Status peer_post(PeerComm *p, int slot, Lane lane) {
    uint32_t *const at = &p->buffer->posted[slot];
    if (slot < 0 || slot >= COMM_SLOTS) return fail(ERROR_INTERNAL, "there is no slot %d", slot);
    if (!p->write_value) {
        mark<<<1, 1, 0, lane_stream(p, lane)>>>(at);
        return peer_launched(p, "mark");
    }
    const CUresult result = reinterpret_cast<decltype(&cuStreamWriteValue32)>(p->write_value)(
        lane_stream(p, lane), reinterpret_cast<CUdeviceptr>(at), 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    return result == CUDA_SUCCESS ? OK : fail(ERROR_DEVICE, "cuStreamWriteValue32: error %d", (int)result);
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

/* In a capture, too: a driver that cannot put it into a graph is as good as one that has none. */
Status peer_post_open(PeerComm *p) {
    cudaStream_t stream = lane_stream(p, LANE_SIDE);
    cudaDriverEntryPointQueryResult found;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    void *write_value = NULL;
    CUDA_TRY(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &write_value, 12000, cudaEnableDefault,
                                              &found));
    if (found != cudaDriverEntryPointSuccess || !write_value) return OK;
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    p->write_value = write_value;
    Status status = peer_post(p, 0, LANE_SIDE);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || status ||
        cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess)
        p->write_value = NULL;
    (void)cudaGetLastError();
    if (executable) (void)cudaGraphExecDestroy(executable);
    if (graph) (void)cudaGraphDestroy(graph);
    status_free(status);
    return OK;
}
