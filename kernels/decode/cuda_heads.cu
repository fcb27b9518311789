#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/decode/cuda_rows.cuh"

/* Attention of one query per head. A cluster computes a head. Groups of lanes process keys in parallel, each
 * with its own online softmax; their results are merged in a fixed order. The cluster's first block processes
 * few keys alone; more keys are divided among the blocks, which send their results to the first. */
namespace decode {
namespace {

constexpr int CLUSTER = 8, THREADS = 256, WARP = 32, WARPS = THREADS / WARP; // CLUSTER: most blocks of a head
constexpr int COLUMNS = 8;                                                   // columns of a head per thread
template <class T>
constexpr int UNROLL = 2 * VECTOR<T> / 4; // keys in flight per thread

/* COLUMNS neighbours in memory order. */
template <class T>
struct Piece {
    Words words[COLUMNS * sizeof(T) / 16];

    __device__ inline void load(const T *from) {
#pragma unroll
        for (int i = 0; i < int(sizeof words / 16); i++) words[i] = load_words(from + i * VECTOR<T>);
    }
    __device__ inline void unpack_to(float (&x)[COLUMNS]) const {
        constexpr int N = VECTOR<T>;
#pragma unroll
        for (int i = 0; i < COLUMNS / N; i++) {
            float some[N];
            unpack<T>(words[i], some);
#pragma unroll
            for (int e = 0; e < N; e++) x[i * N + e] = some[e];
        }
    }
};

/* Adds UNROLL keys, STEP apart from `key` on, to the online softmax of query q. */
template <class T, int LANES, int STEP>
__device__ inline void add_scored_keys(Seen<COLUMNS> &seen, const float (&q)[COLUMNS], int key, int end,
                                       const Piece<T> (&k)[UNROLL<T>], const Piece<T> (&v)[UNROLL<T>]) {
    float scores[UNROLL<T>];
#pragma unroll
    for (int u = 0; u < UNROLL<T>; u++) {
        float values[COLUMNS];
        k[u].unpack_to(values);
        scores[u] = 0.f;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) scores[u] = fmaf(q[i], values[i], scores[u]);
        scores[u] = lanes_sum<LANES>(scores[u]);
        if (key + u * STEP >= end) scores[u] = -INFINITY;
    }
    add_keys(seen, scores, [&](int u, float(&values)[COLUMNS]) { v[u].unpack_to(values); });
}

/* Online softmax results, side by side: y of D columns, then maximum and sum; whole words of 16 bytes. */
template <int D>
using SeenRow = float[D + 4];

/* Merges N columns of COUNT results, in their order. */
template <int D, int COUNT, int N>
__device__ inline void merge_rows(const SeenRow<D> (&rows)[COUNT], int column, float &maximum, float &sum,
                                  float (&y)[N]) {
    maximum = -INFINITY;
#pragma unroll
    for (int i = 0; i < COUNT; i++) maximum = fmaxf(maximum, rows[i][D]);
    const float base = maximum == -INFINITY ? 0.f : maximum;
    sum = 0.f;
#pragma unroll
    for (int e = 0; e < N; e++) y[e] = 0.f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float weight = exp2f(rows[i][D] - base);
        float own[N];
        load_floats<N>(&rows[i][column], own);
        sum = fmaf(weight, rows[i][D + 1], sum);
#pragma unroll
        for (int e = 0; e < N; e++) y[e] = fmaf(weight, own[e], y[e]);
    }
}

/* The next UNROLL keys of the group that begins at `key`, STEP keys apart. */
template <class T, int STEP>
__device__ inline void load_keys(const T *k, const T *v, int row, int key, int end,
                                 Piece<T> (&k_rows)[UNROLL<T>], Piece<T> (&v_rows)[UNROLL<T>]) {
#pragma unroll
    for (int u = 0; u < UNROLL<T>; u++) {
        k_rows[u] = v_rows[u] = {};
        if (key + u * STEP >= end) continue;
        k_rows[u].load(k + int64_t(key + u * STEP) * row);
        v_rows[u].load(v + int64_t(key + u * STEP) * row);
    }
}

template <int D>
struct Shared {
    float cosines[D / 2], sines[D / 2];
    alignas(16) SeenRow<D> of_warp[WARPS];    // results over this block's keys
    alignas(16) SeenRow<D> of_block[CLUSTER]; // in the first block: results over the head's keys, gathered
                                              // from all blocks
    uint64_t arrived;                         // barrier of of_block
};

/* The first block receives `parts` - 1 results, by stores that count at its barrier. A block stores only
 * after gpu::cluster_join(), so that the receiving block has started. */
template <int D>
__device__ inline void open_exchange(Shared<D> &shared, int parts) {
    if (threadIdx.x == 0) {
        gpu::barrier_init(&shared.arrived, 1);
        gpu::fence_barrier_init();
        gpu::arrive_expecting(&shared.arrived, (parts - 1) * int(sizeof(SeenRow<D>)));
    }
    gpu::cluster_arrive_relaxed();
}

template <class T>
__device__ inline float as_stored(float x) {
    return to_float(from_float<T>(x));
}

/* A head's row, of which a lane has COLUMNS: normalized if there is a norm, and rotated if `rotary`. */
template <class T, int D>
__device__ inline void turn(float (&x)[COLUMNS], const Piece<T> &norm, bool normed, bool rotary, float eps,
                            const Shared<D> &shared) {
    constexpr int LANES = D / COLUMNS;
    const int lane = threadIdx.x % LANES;
    const float sign = lane < LANES / 2 ? -1.f : 1.f;
    if (normed) {
        float squares = 0.f, weight[COLUMNS];
        norm.unpack_to(weight);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) squares = fmaf(x[i], x[i], squares);
        const float rstd = rsqrtf(lanes_sum<LANES>(squares) / D + eps);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) x[i] = as_stored<T>(x[i] * rstd * weight[i]);
    }
    if (!rotary) return;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        const int pair = lane % (LANES / 2) * COLUMNS + i;
        const float other = __shfl_xor_sync(0xffffffffu, x[i], LANES / 2);
        x[i] = as_stored<T>(x[i] * shared.cosines[pair] + sign * other * shared.sines[pair]);
    }
}

/* Writes the head's y from the results of the block's warps, or of all `parts` blocks. */
template <class T, int D>
__device__ inline void merge(const Seen<COLUMNS> &seen, int rank, int parts, Shared<D> &shared, T *y) {
    constexpr int LANES = D / COLUMNS, QUADS = D / 4;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, column = threadIdx.x % D;
    float maximum, sum, one[1];
    if (lane < LANES) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) shared.of_warp[warp][lane * COLUMNS + i] = seen.y[i];
    }
    if (lane == 0) shared.of_warp[warp][D] = seen.maximum, shared.of_warp[warp][D + 1] = seen.sum;
    __syncthreads();
    if (parts == 1) {
        merge_rows<D>(shared.of_warp, column, maximum, sum, one);
    } else {
        if (threadIdx.x < QUADS) {
            float four[4];
            merge_rows<D>(shared.of_warp, 4 * threadIdx.x, maximum, sum, four);
            const float ends[4] = {maximum, sum, 0.f, 0.f};
            if (rank == 0) {
                store_floats(&shared.of_block[0][4 * threadIdx.x], four);
                if (threadIdx.x == 0) store_floats(&shared.of_block[0][D], ends);
            } else {
                gpu::store_counted(&shared.of_block[rank][4 * threadIdx.x], &shared.arrived, 0, four);
                if (threadIdx.x == 0) gpu::store_counted(&shared.of_block[rank][D], &shared.arrived, 0, ends);
            }
        }
        if (rank > 0) return;
        __syncthreads();
        gpu::wait(&shared.arrived, 0);
        merge_rows<D>(shared.of_block, column, maximum, sum, one);
    }
    if (threadIdx.x < D) y[column] = from_float<T>(one[0] / (sum == 0.f ? 1.f : sum)); // no keys: y is 0
}

/* Floor: the cache's rows. */
/* Anatomy. Parallel: over heads, a cluster each, whose blocks share the keys; D / 8 threads share a key.
 * Launch: heads x 1 to 8 blocks of 256, a head's in a cluster. Holds: 92 to 114 registers, 2448 bytes to 9
 * KiB shared. Occupancy: registers; 25% of the warps. Reads: 16 bytes per load, coalesced within a head's
 * row, 2 or 4 keys of k and v in flight. Syncs: barriers of the block; stores between a cluster's blocks that
 * count at the receiver. Fusion: the products before and after it, by a barrier of the grid. */
template <class T, int D, bool ACROSS>
__global__ void __launch_bounds__(THREADS, 2) heads_kernel(const __grid_constant__ Heads<T> h) {
    if constexpr (gpu::HOPPER) {
        constexpr int LANES = D / COLUMNS, GROUPS = THREADS / LANES, AT_ONCE = GROUPS * UNROLL<T>;
        __shared__ Shared<D> shared;
        const int cluster = int(gridDim.x) / h.heads, head = blockIdx.x / cluster,
                  rank = blockIdx.x % cluster;
        const int group_of_heads = h.heads / h.kv_heads, kv_head = head / group_of_heads;
        const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
        const int past = max(0, min(h.past ? *h.past : h.rows, h.capacity));
        const int parts = min(cluster, max(1, (past + AT_ONCE - 1) / AT_ONCE));
        const int keys = (past + parts - 1) / parts, begin = rank * keys, end = min(begin + keys, past);
        open_exchange(shared, parts);
        T *const cache_k = h.cache_k + kv_head * D + lane * COLUMNS;
        T *const cache_v = h.cache_v + kv_head * D + lane * COLUMNS;
        Piece<T> k_rows[UNROLL<T>], v_rows[UNROLL<T>], norms[2] = {};
        load_keys<T, GROUPS>(cache_k, cache_v, h.row_stride, begin + group, end, k_rows, v_rows);
        const bool normed = h.query_norm != nullptr, rotary = h.frequencies != nullptr;
        if (normed) norms[0].load(h.query_norm + lane * COLUMNS), norms[1].load(h.key_norm + lane * COLUMNS);
        if (rotary && threadIdx.x < D / 2)
            sincosf(float(past) * h.frequencies[threadIdx.x], &shared.sines[threadIdx.x],
                    &shared.cosines[threadIdx.x]);
        for (int i = threadIdx.x; i < CLUSTER * (D + 4); i += THREADS) // blocks without keys zero their part
            if (i / (D + 4) >= parts)
                shared.of_block[i / (D + 4)][i % (D + 4)] = i % (D + 4) == D ? -INFINITY : 0.f;
        gpu::cluster_join();
        __syncthreads();
        let_next_start();
        if (rank >= parts) return;
        wait_for_previous();

        Piece<T> fresh[3];
        const int sections[3] = {head, h.heads + kv_head, h.heads + h.kv_heads + kv_head};
#pragma unroll
        for (int i = 0; i < (ACROSS ? 1 : 3); i++) fresh[i].load(h.qkv + sections[i] * D + lane * COLUMNS);
        float q[COLUMNS];
        fresh[0].unpack_to(q);
        turn<T, D>(q, norms[0], normed, rotary, h.eps, shared);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) q[i] *= h.scale;
        Seen<COLUMNS> seen = {-INFINITY, 0.f, {}};
        if constexpr (!ACROSS) { // the token's own key, which is not in the cache yet
            float k[COLUMNS], own_score = 0.f;
            fresh[1].unpack_to(k);
            turn<T, D>(k, norms[1], normed, rotary, h.eps, shared);
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) own_score = fmaf(q[i], k[i], own_score);
            own_score = lanes_sum<LANES>(own_score);
            if (rank == 0 && group == 0) {
                seen.maximum = own_score;
                seen.sum = 1.f;
                fresh[2].unpack_to(seen.y);
                if (head % group_of_heads == 0) {
                    store_floats(cache_k + int64_t(past) * h.row_stride, k);
                    store_floats(cache_v + int64_t(past) * h.row_stride, seen.y);
                }
            }
        }
        for (int first = begin; first < end; first += AT_ONCE) {
            if (first > begin)
                load_keys<T, GROUPS>(cache_k, cache_v, h.row_stride, first + group, end, k_rows, v_rows);
            add_scored_keys<T, LANES, GROUPS>(seen, q, first + group, end, k_rows, v_rows);
        }
        merge_warp<LANES>(seen);
        merge<T, D>(seen, rank, parts, shared, h.y + head * D);
    }
}

/* A head has as many blocks as can have all its keys in flight, and not more than CLUSTER. */
template <class T, int D, bool ACROSS>
Status launch_for(Ctx *ctx, const Heads<T> &h) {
    constexpr int AT_ONCE = THREADS / (D / COLUMNS) * UNROLL<T>;
    const unsigned heads = unsigned(h.heads);
    if (h.capacity <= AT_ONCE) return LAUNCH_EARLY(ctx, (heads_kernel<T, D, ACROSS>), heads, THREADS, 0, h);
    if (h.capacity <= 2 * AT_ONCE)
        return LAUNCH_CLUSTERS(ctx, 2, (heads_kernel<T, D, ACROSS>), heads * 2, THREADS, 0, h);
    if (h.capacity <= 4 * AT_ONCE)
        return LAUNCH_CLUSTERS(ctx, 4, (heads_kernel<T, D, ACROSS>), heads * 4, THREADS, 0, h);
    return LAUNCH_CLUSTERS(ctx, CLUSTER, (heads_kernel<T, D, ACROSS>), heads * CLUSTER, THREADS, 0, h);
}

template <class T, bool ACROSS>
Status launch(Ctx *ctx, const Heads<T> &h, int D) {
    if (D == 32) return launch_for<T, 32, ACROSS>(ctx, h);
    if (D == 64) return launch_for<T, 64, ACROSS>(ctx, h);
    return launch_for<T, 128, ACROSS>(ctx, h);
}

} // namespace

bool heads_suit(int64_t D) {
    return D == 32 || D == 64 || D == 128;
}
Status heads(Ctx *ctx, const Heads<float> &h, int D, bool across) {
    return across ? launch<float, true>(ctx, h, D) : launch<float, false>(ctx, h, D);
}
Status heads(Ctx *ctx, const Heads<bf16> &h, int D, bool across) {
    return across ? launch<bf16, true>(ctx, h, D) : launch<bf16, false>(ctx, h, D);
}

} // namespace decode
