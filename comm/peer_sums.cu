/* Sums of the peer engine, in rank order. */
#include "comm/peer_wait.cuh"

#include "kernels/cuda/packs.cuh"

/* In the side lane the kernels have few blocks, because they run concurrently with others. */
enum { SIDE_BLOCKS = 32, SUM_THREADS = 512, SMALL_THREADS = 1024 };

/* Anatomy. Parallel: over packs of elements, one per thread and iteration; a thread sums over ranks. Launch:
 * count / (512 packs) blocks of 512, in the side lane at most 32. Holds: 22 to 32 registers, no shared
 * memory. Occupancy: not limited: all warps fit. Reads: 16 bytes per load, coalesced, of every rank's memory,
 * 2 ranks in flight; one element where not aligned. Syncs: none: the caller's barrier stands before it.
 * Fusion: with the cast or update that reads the sum. */
template <class T, int N>
__global__ static void add_in_rank_order(const __grid_constant__ Addresses from, int ranks, int64_t count,
                                         T *to) {
    wait_for_previous();
    let_next_start();
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

template <class T, int N>
static Status launch_sum(PeerComm *p, const Addresses &from, int64_t count, T *to, unsigned blocks,
                         Lane lane) {
    if (lane == LANE_MAIN)
        return cuda_launch<true>(p->cuda, "add_in_rank_order", add_in_rank_order<T, N>, dim3(blocks),
                                 dim3(SUM_THREADS), 0, from, p->size, count, to);
    add_in_rank_order<T, N><<<blocks, SUM_THREADS, 0, lane_stream(p, lane)>>>(from, p->size, count, to);
    return peer_launched(p, "add_in_rank_order");
}

Status peer_add(PeerComm *p, const Addresses &from, int64_t count, Dtype dtype, void *to, Lane lane) {
    const int pack = 16 / (int)dtype_size(dtype);
    const int64_t all = divide_up(count, (int64_t)pack * SUM_THREADS);
    const unsigned blocks =
        (unsigned)(lane == LANE_MAIN || all < (int64_t)SIDE_BLOCKS ? all : (int64_t)SIDE_BLOCKS);
    bool packed = walks_in_packs(pack, {count}, {to});
    if (count == 0) return OK;
    for (int rank = 0; rank < p->size; rank++) packed = packed && (uintptr_t)from.at[rank] % 16 == 0;
    DISPATCH_FLOAT(
        dtype, T,
        DISPATCH_PACK(packed, T, N,
                      return launch_sum<T, N>(p, from, count, static_cast<T *>(to), blocks, lane)));
}

/* ---- small tensors, in one launch ---- */

/* The type in which a sum of T is computed. */
template <class T>
struct Total {
    typedef float type;
};
template <>
struct Total<double> {
    typedef double type;
};

__device__ static inline double to_total(double x) {
    return x;
}
__device__ static inline float to_total(float x) {
    return x;
}
__device__ static inline float to_total(bf16 x) {
    return to_float(x);
}

template <class T>
__device__ static inline T from_total(typename Total<T>::type x) {
    if constexpr (sizeof(T) == sizeof(bf16))
        return from_float<T>(x);
    else
        return x;
}

/* One block: writes this rank's values where the other ranks read them, and reads theirs. A rank's buffer is
 * overwritten two turns later. In the turn between, that rank must have taken part, so it has finished
 * reading. */
/* Anatomy. Parallel: over elements. Launch: one block of 1024. Holds: 32 to 38 registers, no shared memory.
 * Occupancy: one block: its latency counts. Reads: one element per thread, coalesced, of every rank's memory.
 * Syncs: two barriers of the block, and flags between the ranks. Fusion: nothing: exchange and sum are one
 * launch. */
template <class T>
__global__ static void __launch_bounds__(SMALL_THREADS)
    add_small(const __grid_constant__ Addresses buffers, const PeerPage *page, int lane, int rank, int size,
              int count, T *data) {
    PeerBuffer *const own = reinterpret_cast<PeerBuffer *>(buffers.at[rank]);
    const uint32_t turn = own->turns.smalls[lane] + 1;
    const int thread = (int)threadIdx.x;
    T *const said = reinterpret_cast<T *>(own->smalls[lane][turn % 2]);
    for (int i = thread; i < count; i += SMALL_THREADS) said[i] = data[i];
    __threadfence_system();
    __syncthreads();
    if (thread == 0) own->turns.smalls[lane] = turn;
    if (thread < size) {
        store_release(&reinterpret_cast<PeerBuffer *>(buffers.at[thread])->flags.smalls[lane][rank], turn);
        wait_for_flag(&own->flags.smalls[lane][thread], turn, page);
    }
    __syncthreads();
#pragma unroll 4
    for (int i = thread; i < count; i += SMALL_THREADS) {
        typename Total<T>::type total = 0;
        for (int other = 0; other < size; other++) {
            const PeerBuffer *from = reinterpret_cast<const PeerBuffer *>(buffers.at[other]);
            const T value = __ldcg(reinterpret_cast<const T *>(from->smalls[lane][turn % 2]) + i);
            total = other == 0 ? to_total(value) : total + to_total(value);
        }
        data[i] = from_total<T>(total);
    }
}

template <class T>
static Status add_small_of(PeerComm *p, void *data, int64_t count, Lane lane) {
    const Addresses buffers = peer_places(p, peer_find(p, p->buffer, sizeof *p->buffer), p->buffer, 0);
    add_small<T><<<1, SMALL_THREADS, 0, lane_stream(p, lane)>>>(buffers, p->device_page, lane, p->rank,
                                                                p->size, (int)count, static_cast<T *>(data));
    return peer_launched(p, "add_small");
}

Status peer_add_small(PeerComm *p, void *data, int64_t count, Dtype dtype, Lane lane) {
    if (dtype == F64) return add_small_of<double>(p, data, count, lane);
    DISPATCH_FLOAT(dtype, T, return add_small_of<T>(p, data, count, lane));
}
