#include "kernels/cuda/reduce.cuh"
#include "kernels/decode/cuda_keys.cuh"
#include "kernels/decode/cuda_token.cuh"

/* A cluster computes one head, from the residual stream to the head's part of the attention branch's output.
 * Each block has a share of the rows of q, k and v, of the keys, and of the columns of the stream. With
 * ACROSS (to the encoder's keys and values) only q is computed and nothing is appended. */
namespace decode {
namespace {

/* A block's fixed-size shared memory. */
template <int D>
struct Exchange {
    float bias[3][D / CLUSTER];               // bias of this block's rows
    float qkv[3][D];                          // q, k and v of the head, gathered from all blocks of the
                                              // cluster
    alignas(16) SeenRow<D> of_warp[WARPS];    // results over this block's keys
    alignas(16) SeenRow<D> of_block[CLUSTER]; // results over the head's keys, gathered from all blocks
    float merged[D];
    uint64_t arrived[2]; // barriers of qkv and of_block
};

/* Computes q, k and v of the head, or the first SECTIONS of them: each block makes D / CLUSTER rows of each
 * and sends them to every block. */
template <class T, int D, int SECTIONS>
__device__ inline void project(const T *weights, const T *normed, int width, int rank,
                               Exchange<D> &exchange) {
    constexpr int OWN = D / CLUSTER, ROWS = SECTIONS * OWN, EACH = (ROWS + WARPS - 1) / WARPS;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const T *rows[EACH];
    float sums[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) rows[i] = weights + min(warp + i * WARPS, ROWS - 1) * width;
    multiply_rows<T, EACH>(rows, normed, width, sums);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int row = warp + i * WARPS, section = row / OWN, own = row % OWN;
        if (row >= ROWS) break;
        const float value = warp_sum(sums[i]) + exchange.bias[section][own];
        if (lane < CLUSTER)
            gpu::store_counted(&exchange.qkv[section][rank * OWN + own], &exchange.arrived[0], lane,
                               to_float(from_float<T>(value)));
    }
}

/* Merges the results of each group's keys, then of the block's; then of the head's, unless each block has
 * processed all keys. exchange.merged is the result of attention. */
template <class T, int D, bool ACROSS>
__device__ inline void merge(const Seen<COLUMNS> &seen, int rank, bool all, Exchange<D> &exchange) {
    constexpr int LANES = D / COLUMNS;
    constexpr int QUADS = D / 4; // groups of four columns
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, column = threadIdx.x % D;
    float maximum, sum, y[1];
    if (lane < LANES) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) exchange.of_warp[warp][lane * COLUMNS + i] = seen.y[i];
    }
    if (lane == 0) exchange.of_warp[warp][D] = seen.maximum, exchange.of_warp[warp][D + 1] = seen.sum;
    __syncthreads();
    if (ACROSS && all) {
        merge_rows<D>(exchange.of_warp, column, maximum, sum, y);
    } else {
        if (threadIdx.x < CLUSTER * QUADS) {
            const int block = threadIdx.x / QUADS, quad = threadIdx.x % QUADS;
            float four[4];
            merge_rows<D>(exchange.of_warp, 4 * quad, maximum, sum, four);
            gpu::store_counted(&exchange.of_block[rank][4 * quad], &exchange.arrived[1], block, four);
            const float ends[4] = {maximum, sum, 0.f, 0.f};
            if (quad == 0) gpu::store_counted(&exchange.of_block[rank][D], &exchange.arrived[1], block, ends);
        }
        gpu::wait(&exchange.arrived[1], 0);
        merge_rows<D>(exchange.of_block, column, maximum, sum, y);
    }
    if (ACROSS && sum == 0.f) sum = 1.f; // no keys: y is 0
    if (threadIdx.x < D) exchange.merged[column] = to_float(from_float<T>(y[0] / sum));
    __syncthreads();
}

/* Computes the block's `share` columns of the head's part. */
template <class T, int D>
__device__ inline void project_back(const T *weights, const float *bias, int share,
                                    const Exchange<D> &exchange, float *part) {
    constexpr int N = VECTOR<T>, LANES = D / N, GROUPS = THREADS / LANES;
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    float x[N];
#pragma unroll
    for (int e = 0; e < N; e++) x[e] = exchange.merged[lane * N + e];
    for (int first = 0; first < share; first += GROUPS) {
        const int row = first + group;
        float sum = 0.f, w[N];
        if (row < share) {
            unpack<T>(load_words(weights + row * D + lane * N), w);
#pragma unroll
            for (int e = 0; e < N; e++) sum = fmaf(x[e], w[e], sum);
        }
        sum = group_sum<LANES>(sum);
        if (lane == 0 && row < share) part[row] = sum + bias[row];
    }
}

/* The number of keys before the token's own. */
template <class T, bool ACROSS>
__device__ inline int keys_of(const Attend<T> &a) {
    if (ACROSS) return a.length ? max(0, min(*a.length, a.most)) : a.most;
    return a.stream.past ? *a.stream.past : a.stream.rows;
}

/* Floor: the weights, and the cache's rows. */
/* Anatomy. Parallel: over heads, a cluster each, whose blocks share rows of weights, keys and columns.
 * Launch: heads x 8 blocks of 256, in clusters of 8. Holds: 122 to 128 registers, the block's weights in
 * shared memory, attend_bytes(). Occupancy: shared memory, by the width; at most 2 blocks per multiprocessor.
 * Reads: weights by asynchronous copies of 16 bytes before the wait; keys 16 bytes per load. Syncs: barriers
 * of the block; stores between a cluster's blocks that count at the receiver, twice. Fusion: the feed-forward
 * layer, by a barrier of the grid. */
template <class T, int D, bool ACROSS, bool AFTER>
__global__ void __launch_bounds__(THREADS, 2) attend_kernel(const __grid_constant__ Attend<T> a) {
    if constexpr (gpu::HOPPER) {
        constexpr int LANES = D / COLUMNS, GROUPS = THREADS / LANES, OWN = D / CLUSTER;
        constexpr int SECTIONS = ACROSS ? 1 : 3, AT_ONCE = GROUPS * UNROLL<T>;
        extern __shared__ uint4 memory[];
        __shared__ Exchange<D> exchange;
        const int C = a.stream.width, share = C / CLUSTER, row = a.row_stride;
        const int head = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
        const int heads_per_kv = a.heads / a.kv_heads, kv_head = head / heads_per_kv;
        T *const qkv = reinterpret_cast<T *>(memory), *const projection = qkv + SECTIONS * OWN * C;
        const Row<T> stream = row_at<T>(projection + share * D, C);
        float *const bias = stream.r + C; // (share)
        open_exchanges(exchange.arrived, {SECTIONS * D * int(sizeof(float)), int(sizeof exchange.of_block)});

        const int sections[3] = {head * D, (a.heads + kv_head) * D, (a.heads + a.kv_heads + kv_head) * D};
#pragma unroll
        for (int i = 0; i < SECTIONS; i++)
            fetch(qkv + i * OWN * C, a.qkv + int64_t(sections[i] + rank * OWN) * C, 1,
                  OWN * C * int(sizeof(T)), 0);
        fetch(projection, a.projection + int64_t(rank) * share * a.heads * D + head * D, share,
              D * int(sizeof(T)), int64_t(a.heads) * D * sizeof(T));
        fetch_norm<T, AFTER>(a.stream, stream);

        const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
        if (a.stream.id) wait_for_previous(); // it may have sampled the token and advanced the position
        const int past = keys_of<T, ACROSS>(a);
        const bool all =
            ACROSS && past <= AT_ONCE; // for so few keys, an exchange would take longer than processing them
                                       // in each block
        const int keys = all ? past : (past + CLUSTER - 1) / CLUSTER;
        const int begin = all ? 0 : rank * keys, end = min(begin + keys, past);
        const T *const k = a.cache_k + kv_head * D + lane * COLUMNS;
        const T *const v = a.cache_v + kv_head * D + lane * COLUMNS;
        Piece<T> k_rows[UNROLL<T>], v_rows[UNROLL<T>];
        load_keys<T, GROUPS>(k, v, row, begin + group, end, k_rows, v_rows);
        if (threadIdx.x < SECTIONS * OWN)
            exchange.bias[threadIdx.x / OWN][threadIdx.x % OWN] =
                to_float(a.qkv_bias[sections[threadIdx.x / OWN] + rank * OWN + threadIdx.x % OWN]);
        for (int i = threadIdx.x; i < share; i += THREADS)
            bias[i] = head == 0 ? to_float(a.projection_bias[rank * share + i]) : 0.f;

        gpu::cluster_join();
        norm_stream<T, AFTER>(a.stream, stream, blockIdx.x == 0);
        project<T, D, SECTIONS>(qkv, stream.normed, C, rank, exchange);
        gpu::wait(&exchange.arrived[0], 0);

        float q[COLUMNS], own_score = 0.f;
        Seen<COLUMNS> seen = {-INFINITY, 0.f, {}};
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            q[i] = exchange.qkv[0][lane * COLUMNS + i] * a.scale;
            if (!ACROSS) own_score = fmaf(q[i], exchange.qkv[1][lane * COLUMNS + i], own_score);
        }
        if (!ACROSS) own_score = group_sum<LANES>(own_score);
        if (!ACROSS && rank == 0 && group == 0) { // the token's own key, which is not in the cache yet
            seen.maximum = own_score;
            seen.sum = 1.f;
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) seen.y[i] = exchange.qkv[2][lane * COLUMNS + i];
        }
        for (int first = begin; first < end; first += AT_ONCE) {
            if (first > begin) load_keys<T, GROUPS>(k, v, row, first + group, end, k_rows, v_rows);
            add_scored_keys<T, LANES, GROUPS>(seen, q, first + group, end, k_rows, v_rows);
        }
        if (!ACROSS && rank == 0 && head % heads_per_kv == 0 && threadIdx.x < D) {
            const int64_t at = int64_t(past) * row + kv_head * D + threadIdx.x;
            a.cache_k[at] = from_float<T>(exchange.qkv[1][threadIdx.x]);
            a.cache_v[at] = from_float<T>(exchange.qkv[2][threadIdx.x]);
        }
        merge_warp<LANES>(seen);
        merge<T, D, ACROSS>(seen, rank, all, exchange);
        project_back<T, D>(projection, bias, share, exchange, a.parts + head * C + rank * share);
    }
}

template <class T, int D, bool ACROSS, bool AFTER>
Status launch_as(Ctx *ctx, const Attend<T> &a) {
    const unsigned blocks = unsigned(a.heads) * CLUSTER;
    const size_t bytes = attend_bytes(a.stream.width, D, sizeof(T), ACROSS);
    return LAUNCH_CLUSTERS(ctx, CLUSTER, (attend_kernel<T, D, ACROSS, AFTER>), blocks, THREADS, bytes, a);
}

template <class T, int D>
Status launch_for(Ctx *ctx, const Attend<T> &a, bool across, bool after) {
    if (across) return after ? launch_as<T, D, true, true>(ctx, a) : launch_as<T, D, true, false>(ctx, a);
    return after ? launch_as<T, D, false, true>(ctx, a) : launch_as<T, D, false, false>(ctx, a);
}

template <class T>
Status launch(Ctx *ctx, const Attend<T> &a, int D, bool across, bool after) {
    if (D == 32) return launch_for<T, 32>(ctx, a, across, after);
    if (D == 64) return launch_for<T, 64>(ctx, a, across, after);
    return launch_for<T, 128>(ctx, a, across, after);
}

} // namespace

size_t attend_bytes(int width, int D, size_t size, bool across) {
    const size_t C = size_t(width), rows = (across ? 1 : 3) * size_t(D) / CLUSTER;
    return (rows * C + C / CLUSTER * size_t(D)) * size + row_bytes(width, size) + C / CLUSTER * sizeof(float);
}

Status attend(Ctx *ctx, const Attend<float> &a, int D, bool across, bool after) {
    return launch(ctx, a, D, across, after);
}
Status attend(Ctx *ctx, const Attend<bf16> &a, int D, bool across, bool after) {
    return launch(ctx, a, D, across, after);
}

} // namespace decode
