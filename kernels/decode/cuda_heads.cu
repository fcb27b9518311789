#include "kernels/decode/cuda_keys.cuh"
#include "kernels/decode/cuda_rows.cuh"

/* A cluster computes one head. Its first block processes few keys alone; more keys are divided among the
 * blocks, which send their results to the first. */
namespace decode {
namespace {

template <int D>
struct Shared {
    float cosines[D / 2], sines[D / 2];
    alignas(16) SeenRow<D> of_warp[WARPS];    // results over this block's keys
    alignas(16) SeenRow<D> of_block[CLUSTER]; // in the first block: results over the head's keys, gathered
                                              // from all blocks
    uint64_t arrived[1];
};

template <class T>
__device__ inline float as_stored(float x) {
    return to_float(from_float<T>(x));
}

/* A head's row, of which a lane has COLUMNS: normalized if there is a norm, and rotated. */
template <class T, int D>
__device__ inline void turn(float (&x)[COLUMNS], const Piece<T> &norm, bool normed, float eps,
                            const Shared<D> &shared) {
    constexpr int LANES = D / COLUMNS;
    const int lane = threadIdx.x % LANES;
    const float sign = lane < LANES / 2 ? -1.f : 1.f;
    if (normed) {
        float squares = 0.f, weight[COLUMNS];
        norm.unpack_to(weight);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) squares = fmaf(x[i], x[i], squares);
        const float rstd = rsqrtf(group_sum<LANES>(squares) / D + eps);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) x[i] = as_stored<T>(x[i] * rstd * weight[i]);
    }
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
                gpu::store_counted(&shared.of_block[rank][4 * threadIdx.x], &shared.arrived[0], 0, four);
                if (threadIdx.x == 0)
                    gpu::store_counted(&shared.of_block[rank][D], &shared.arrived[0], 0, ends);
            }
        }
        if (rank > 0) return;
        __syncthreads();
        gpu::wait(&shared.arrived[0], 0);
        merge_rows<D>(shared.of_block, column, maximum, sum, one);
    }
    if (threadIdx.x < D) y[column] = from_float<T>(one[0] / sum);
}

/* Floor: the cache's rows. */
/* Anatomy. Parallel: over heads, a cluster each, whose blocks share the keys; D / 8 threads share a key.
 * Launch: heads x 8 blocks of 256, in clusters of 8. Holds: 92 to 114 registers, 2448 bytes to 9 KiB shared.
 * Occupancy: registers; 25% of the warps. Reads: 16 bytes per load, coalesced within a head's row, 2 or 4
 * keys of k and v in flight. Syncs: barriers of the block; stores between a cluster's blocks that count at
 * the receiver. Fusion: the projections before and after it, as attend_kernel does. */
template <class T, int D>
__global__ void __launch_bounds__(THREADS, 2) heads_kernel(const __grid_constant__ Heads<T> h) {
    if constexpr (gpu::HOPPER) {
        constexpr int LANES = D / COLUMNS, GROUPS = THREADS / LANES, AT_ONCE = GROUPS * UNROLL<T>;
        __shared__ Shared<D> shared;
        const int head = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER, row = h.kv_heads * D;
        const int group_of_heads = h.heads / h.kv_heads, kv_head = head / group_of_heads;
        const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
        const int past = h.past ? *h.past : h.rows;
        const int parts = min(CLUSTER, max(1, (past + AT_ONCE - 1) / AT_ONCE));
        const int keys = (past + parts - 1) / parts, begin = rank * keys, end = min(begin + keys, past);
        open_exchanges(shared.arrived, {(parts - 1) * int(sizeof(SeenRow<D>))});
        T *const cache_k = h.cache_k + kv_head * D + lane * COLUMNS;
        T *const cache_v = h.cache_v + kv_head * D + lane * COLUMNS;
        Piece<T> k_rows[UNROLL<T>], v_rows[UNROLL<T>], norms[2] = {};
        load_keys<T, GROUPS>(cache_k, cache_v, row, begin + group, end, k_rows, v_rows);
        const bool normed = h.query_norm != nullptr;
        if (normed) norms[0].load(h.query_norm + lane * COLUMNS), norms[1].load(h.key_norm + lane * COLUMNS);
        if (threadIdx.x < D / 2)
            sincosf(float(past) * h.frequencies[threadIdx.x], &shared.sines[threadIdx.x],
                    &shared.cosines[threadIdx.x]);
        for (int i = threadIdx.x; i < CLUSTER * (D + 4); i += THREADS) // blocks without keys zero their part
            if (i / (D + 4) >= parts)
                shared.of_block[i / (D + 4)][i % (D + 4)] = i % (D + 4) == D ? -INFINITY : 0.f;
        gpu::cluster_join();
        __syncthreads();
        let_next_start();
        wait_for_previous();
        if (rank >= parts) return;

        Piece<T> fresh[3];
        const int sections[3] = {head, h.heads + kv_head, h.heads + h.kv_heads + kv_head};
#pragma unroll
        for (int i = 0; i < 3; i++) fresh[i].load(h.qkv + sections[i] * D + lane * COLUMNS);
        float q[COLUMNS], k[COLUMNS];
        fresh[0].unpack_to(q);
        fresh[1].unpack_to(k);
        turn<T, D>(q, norms[0], normed, h.eps, shared);
        turn<T, D>(k, norms[1], normed, h.eps, shared);
        float own_score = 0.f;
        Seen<COLUMNS> seen = {-INFINITY, 0.f, {}};
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            q[i] *= h.scale;
            own_score = fmaf(q[i], k[i], own_score);
        }
        own_score = group_sum<LANES>(own_score);
        if (rank == 0 && group == 0) { // the token's own key, which is not in the cache yet
            seen.maximum = own_score;
            seen.sum = 1.f;
            fresh[2].unpack_to(seen.y);
            if (head % group_of_heads == 0) {
                store_floats(cache_k + int64_t(past) * row, k);
                store_floats(cache_v + int64_t(past) * row, seen.y);
            }
        }
        for (int first = begin; first < end; first += AT_ONCE) {
            if (first > begin)
                load_keys<T, GROUPS>(cache_k, cache_v, row, first + group, end, k_rows, v_rows);
            add_scored_keys<T, LANES, GROUPS>(seen, q, first + group, end, k_rows, v_rows);
        }
        merge_warp<LANES>(seen);
        merge<T, D>(seen, rank, parts, shared, h.y + head * D);
    }
}

template <class T>
Status launch(Ctx *ctx, const Heads<T> &h, int D) {
    const unsigned blocks = unsigned(h.heads) * CLUSTER;
    if (D == 32) return LAUNCH_CLUSTERS(ctx, CLUSTER, (heads_kernel<T, 32>), blocks, THREADS, 0, h);
    if (D == 64) return LAUNCH_CLUSTERS(ctx, CLUSTER, (heads_kernel<T, 64>), blocks, THREADS, 0, h);
    return LAUNCH_CLUSTERS(ctx, CLUSTER, (heads_kernel<T, 128>), blocks, THREADS, 0, h);
}

} // namespace

Status heads(Ctx *ctx, const Heads<float> &h, int D) {
    return launch(ctx, h, D);
}
Status heads(Ctx *ctx, const Heads<bf16> &h, int D) {
    return launch(ctx, h, D);
}

} // namespace decode
