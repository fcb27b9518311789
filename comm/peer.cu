/* The collectives between GPUs of one host. Each is: a barrier, after which all ranks' data may be read;
 * reading; and a barrier, after which they may be written again. Sums are made by a kernel that reads all
 * ranks' values in rank order; what is only moved the copy engines move. */
#include "comm/peer.cuh"

#include "kernels/cuda/packs.cuh"

/* Few blocks: they run beside the backward pass, and what a link brings needs no more. */
enum { SUM_BLOCKS = 32, SUM_THREADS = 512, BARRIER_THREADS = 32 };
static_assert((int)PEERS_MOST <= (int)BARRIER_THREADS, "a thread for each rank");

/* ---- waiting for each other ---- */

__device__ static uint32_t load_acquire(const uint32_t *from) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ static void store_release(uint32_t *to, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/* Says that this rank has come, and waits until all have, or one has aborted. One block. */
__global__ static void wait_for_ranks(PeerPage *page, int lane, int rank, int size, uint32_t *turns) {
    const uint32_t turn = turns[lane] + 1;
    const int other = (int)threadIdx.x;
    __syncthreads();
    if (other == 0) {
        turns[lane] = turn;
        __threadfence_system(); // what kernels and copies before this one have written
        store_release(&page->flags[lane][rank].turn, turn);
    }
    if (other >= size) return;
    while ((int32_t)(load_acquire(&page->flags[lane][other].turn) - turn) < 0) {
        if (load_acquire(&page->aborted)) return;
        __nanosleep(200);
    }
    __threadfence_system();
}

static Status launched(PeerComm *p, const char *what) {
    TRY(cuda_status(cudaGetLastError(), what));
    p->cuda->base.launches++;
    return OK;
}

static Status barrier(PeerComm *p, Lane lane) {
    wait_for_ranks<<<1, BARRIER_THREADS, 0, lane_stream(p, lane)>>>(p->device_page, lane, p->rank, p->size,
                                                                    p->turns);
    return launched(p, "wait_for_ranks");
}

/* ---- sums ---- */

struct Addresses {
    const char *at[PEERS_MOST]; // of each rank
};

/* to[i] = at[0][i] + at[1][i] + ..., from the left. `to` may be one of them. */
template <class T, int N>
__global__ static void add_in_rank_order(Addresses from, int ranks, int64_t count, T *to) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float total[N];
        load_floats<N>(reinterpret_cast<const T *>(from.at[0]) + i, total);
#pragma unroll 2
        for (int rank = 1; rank < ranks; rank++) {
            float value[N];
            load_floats<N>(reinterpret_cast<const T *>(from.at[rank]) + i, value);
#pragma unroll
            for (int e = 0; e < N; e++) total[e] += value[e];
        }
        store_floats<N>(to + i, total);
    }
}

/* `from` are all ranks' first elements. */
static Status add(PeerComm *p, const Addresses &from, int64_t count, Dtype dtype, void *to, Lane lane) {
    bool packed = walks_in_packs(16 / (int)dtype_size(dtype), {count}, {to});
    if (count == 0) return OK;
    for (int rank = 0; rank < p->size; rank++) packed = packed && (uintptr_t)from.at[rank] % 16 == 0;
    DISPATCH_FLOAT(dtype, T,
                   DISPATCH_PACK(packed, T, N,
                                 add_in_rank_order<T, N>
                                 <<<SUM_BLOCKS, SUM_THREADS, 0, lane_stream(p, lane)>>>(
                                     from, p->size, count, static_cast<T *>(to))));
    return launched(p, "add_in_rank_order");
}

/* ---- copies ---- */

struct Copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* Several at once, each by an engine of its own; one alone in the lane itself. */
static Status copy_all(PeerComm *p, const Copy *copies, int count, Lane lane) {
    const cudaStream_t stream = lane_stream(p, lane);
    if (count > 1) CUDA_TRY(cudaEventRecord(p->before[lane], stream));
    for (int i = 0; i < count; i++) {
        const cudaStream_t own = count > 1 ? p->copies[lane][i % PEER_COPIES] : stream;
        if (count > 1 && i < PEER_COPIES) CUDA_TRY(cudaStreamWaitEvent(own, p->before[lane], 0));
        if (copies[i].bytes)
            CUDA_TRY(cudaMemcpyAsync(copies[i].to, copies[i].from, copies[i].bytes, cudaMemcpyDefault, own));
    }
    for (int i = 0; count > 1 && i < count && i < PEER_COPIES; i++) {
        CUDA_TRY(cudaEventRecord(p->after[lane][i], p->copies[lane][i]));
        CUDA_TRY(cudaStreamWaitEvent(stream, p->after[lane][i], 0));
    }
    return OK;
}

/* Every other rank's part, from where it has it; the nearest rank above first, so that not all read from
 * one. */
static Status pull_parts(PeerComm *p, const Addresses &from, char *whole, size_t part, size_t bytes,
                         Lane lane) {
    Copy copies[PEERS_MOST];
    int count = 0;
    for (int i = 1; i < p->size; i++) {
        const int rank = (p->rank + i) % p->size;
        const size_t first = (size_t)rank * part;
        if (first >= bytes) continue; // of a tensor that falls into fewer parts
        copies[count++] = {whole + first, from.at[rank], bytes - first < part ? bytes - first : part};
    }
    return copy_all(p, copies, count, lane);
}

/* ---- collectives on shared memory ---- */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Where each rank has what this one has at `memory`; `stride` is added for each rank. */
static Addresses places_of(const PeerComm *p, const PeerRegion *region, const void *memory, size_t stride) {
    Addresses from = {};
    const size_t offset = (size_t)((const char *)memory - region->base);
    for (int rank = 0; rank < p->size; rank++)
        from.at[rank] = region->peers[rank] + offset + (size_t)rank * stride;
    return from;
}

static Status shared_reduce_scatter(PeerComm *p, const PeerRegion *region, const char *whole, int64_t count,
                                    Dtype dtype, void *piece, Lane lane) {
    const size_t first = (size_t)p->rank * (size_t)count * dtype_size(dtype);
    TRY(barrier(p, lane));
    TRY(add(p, places_of(p, region, whole + first, 0), count, dtype, piece, lane));
    return barrier(p, lane);
}

/* Own parts are added in place: nobody else reads them. The others' are copied once they have done the
 * same. */
static Status shared_all_reduce(PeerComm *p, const PeerRegion *region, char *data, int64_t count, Dtype dtype,
                                Lane lane) {
    const int64_t each = comm_padded(p->size, count) / p->size, first = each * p->rank;
    const int64_t own = first >= count ? 0 : count - first < each ? count - first : each;
    const size_t part = (size_t)each * dtype_size(dtype), bytes = (size_t)count * dtype_size(dtype);
    char *mine = data + (size_t)p->rank * part;
    TRY(barrier(p, lane));
    TRY(add(p, places_of(p, region, mine, 0), own, dtype, mine, lane));
    TRY(barrier(p, lane));
    TRY(pull_parts(p, places_of(p, region, data, part), data, part, bytes, lane));
    return barrier(p, lane);
}

static Status shared_all_gather(PeerComm *p, const PeerRegion *region, const void *piece, char *whole,
                                size_t bytes, Lane lane) {
    char *mine = whole + (size_t)p->rank * bytes;
    const Copy own = {mine, piece, bytes};
    if (piece != mine) TRY(copy_all(p, &own, 1, lane));
    TRY(barrier(p, lane));
    TRY(pull_parts(p, places_of(p, region, whole, bytes), whole, bytes, (size_t)p->size * bytes, lane));
    return barrier(p, lane);
}

static Status shared_broadcast(PeerComm *p, const PeerRegion *region, int root, void *data, size_t bytes,
                               Lane lane) {
    const Copy copy = {data, places_of(p, region, data, 0).at[root], bytes};
    TRY(barrier(p, lane));
    if (p->rank != root) TRY(copy_all(p, &copy, 1, lane));
    return barrier(p, lane);
}

/* ---- and through the buffers, piece by piece, where it is not shared ---- */

enum { LANE_BUFFER = PEER_BUFFER / LANE_COUNT };

static char *buffer_of(const PeerComm *p, Lane lane) {
    return p->buffer + (size_t)lane * LANE_BUFFER;
}

/* Where each rank has what is at `offset` of its buffer. */
static Addresses buffers(const PeerComm *p, Lane lane, size_t offset) {
    return places_of(p, peer_find(p, p->buffer, PEER_BUFFER), buffer_of(p, lane) + offset, 0);
}

static Status copy(PeerComm *p, void *to, const void *from, size_t bytes, Lane lane) {
    const Copy one = {to, from, bytes};
    return copy_all(p, &one, 1, lane);
}

static Status buffered_reduce_scatter(PeerComm *p, const char *whole, char *piece, int64_t count, Dtype dtype,
                                      Lane lane) {
    const size_t element = dtype_size(dtype), bytes = (size_t)count * element;
    const size_t slice = LANE_BUFFER / (size_t)p->size / 256 * 256; // of each rank's part
    for (size_t first = 0; first < bytes; first += slice) {
        const size_t now = smaller(slice, bytes - first);
        CUDA_TRY(cudaMemcpy2DAsync(buffer_of(p, lane), slice, whole + first, bytes, now, (size_t)p->size,
                                   cudaMemcpyDeviceToDevice, lane_stream(p, lane)));
        TRY(barrier(p, lane));
        TRY(add(p, buffers(p, lane, (size_t)p->rank * slice), (int64_t)(now / element), dtype, piece + first,
                lane));
        TRY(barrier(p, lane));
    }
    return OK;
}

static Status buffered_all_reduce(PeerComm *p, char *data, int64_t count, Dtype dtype, Lane lane) {
    const size_t element = dtype_size(dtype), bytes = (size_t)count * element;
    for (size_t first = 0; first < bytes; first += LANE_BUFFER) {
        const size_t now = smaller(LANE_BUFFER, bytes - first);
        TRY(copy(p, buffer_of(p, lane), data + first, now, lane));
        TRY(barrier(p, lane));
        TRY(add(p, buffers(p, lane, 0), (int64_t)(now / element), dtype, data + first, lane));
        TRY(barrier(p, lane));
    }
    return OK;
}

static Status buffered_all_gather(PeerComm *p, const char *piece, char *whole, size_t bytes, Lane lane) {
    const Addresses from = buffers(p, lane, 0);
    for (size_t first = 0; first < bytes; first += LANE_BUFFER) {
        const size_t now = smaller(LANE_BUFFER, bytes - first);
        Copy copies[PEERS_MOST];
        for (int rank = 0; rank < p->size; rank++)
            copies[rank] = {whole + (size_t)rank * bytes + first, from.at[rank], now};
        TRY(copy(p, buffer_of(p, lane), piece + first, now, lane));
        TRY(barrier(p, lane));
        TRY(copy_all(p, copies, p->size, lane));
        TRY(barrier(p, lane));
    }
    return OK;
}

static Status buffered_broadcast(PeerComm *p, int root, char *data, size_t bytes, Lane lane) {
    for (size_t first = 0; first < bytes; first += LANE_BUFFER) {
        const size_t now = smaller(LANE_BUFFER, bytes - first);
        if (p->rank == root) TRY(copy(p, buffer_of(p, lane), data + first, now, lane));
        TRY(barrier(p, lane));
        if (p->rank != root) TRY(copy(p, data + first, buffers(p, lane, 0).at[root], now, lane));
        TRY(barrier(p, lane));
    }
    return OK;
}

/* ---- the engine ---- */

static Status peer_all_reduce(Comm *comm, void *data, int64_t count, Dtype dtype, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, data, (size_t)count * dtype_size(dtype));
    char *at = static_cast<char *>(data);
    return region ? shared_all_reduce(p, region, at, count, dtype, lane)
                  : buffered_all_reduce(p, at, count, dtype, lane);
}

static Status peer_reduce_scatter(Comm *comm, const void *whole, void *piece, int64_t count, Dtype dtype,
                                  Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, whole, (size_t)(count * p->size) * dtype_size(dtype));
    const char *from = static_cast<const char *>(whole);
    return region ? shared_reduce_scatter(p, region, from, count, dtype, piece, lane)
                  : buffered_reduce_scatter(p, from, static_cast<char *>(piece), count, dtype, lane);
}

static Status peer_all_gather(Comm *comm, const void *piece, void *whole, size_t bytes, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, whole, (size_t)p->size * bytes);
    char *to = static_cast<char *>(whole);
    return region ? shared_all_gather(p, region, piece, to, bytes, lane)
                  : buffered_all_gather(p, static_cast<const char *>(piece), to, bytes, lane);
}

static Status peer_broadcast(Comm *comm, int root, void *data, size_t bytes, Lane lane) {
    PeerComm *p = peer_of(comm);
    const PeerRegion *region = peer_find(p, data, bytes);
    return region ? shared_broadcast(p, region, root, data, bytes, lane)
                  : buffered_broadcast(p, root, static_cast<char *>(data), bytes, lane);
}

static Status peer_record(Comm *comm, Lane lane, Event *event) {
    return lanes_record(&peer_of(comm)->lanes, lane, event);
}

static Status peer_wait(Comm *comm, Lane lane, Event *event) {
    return lanes_wait(&peer_of(comm)->lanes, lane, event);
}

static Status peer_check(Comm *comm) {
    PeerComm *p = peer_of(comm);
    if (__atomic_load_n(&p->page->aborted, __ATOMIC_ACQUIRE))
        return fail(ERROR_DEVICE, "the communicator was aborted");
    return p->cuda->base.launched(&p->cuda->base);
}

static void peer_abort(Comm *comm) {
    __atomic_store_n(&peer_of(comm)->page->aborted, 1u, __ATOMIC_RELEASE);
}

const CommEngine peer_engine = {"peer",         peer_all_reduce,     peer_reduce_scatter, peer_all_gather,
                                peer_broadcast, engine_host_barrier, peer_share,          peer_unshare,
                                peer_record,    peer_wait,           peer_check,          peer_abort,
                                peer_close};
