/* Flash attention forward in bf16 on tensor cores. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/attention/cuda_tile.cuh"

/* Dao 2023 (FlashAttention-2), algorithm 1: a block keeps 128 queries and passes over the keys, 64 at a
 * time, with an online softmax. A warp owns 32 queries (M = 2), so that each fragment of keys and values
 * is used in two products. If that makes too few blocks to fill the device, a block keeps 64 queries (M =
 * 1). Scores stay in registers. The next keys and values are prefetched while a tile is processed: one
 * barrier per tile. */

namespace attention {
namespace {

constexpr int KEYS = 64;

template <int WIDTH, int M>
constexpr size_t SHARED = sizeof(bf16) * PITCH<WIDTH> *(16 * M * WARPS + 4 * KEYS);

/* Sets scores of invisible keys in this lane to -inf: keys at or beyond the number that the row sees, and
 * keys before its document. */
template <int M>
__device__ inline void mask(float (&s)[M][KEYS / 8][4], const Problem &p, int b, int length, int row,
                            int key) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = row + 16 * m + 8 * half + g, first = key + 2 * t;
            const int seen = keys_seen(p, length, query) - first, from = first_key(p, b, query) - first;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (8 * n + i >= seen || 8 * n + i < from) s[m][n][2 * half + i] = -INFINITY;
        }
}

/* Applies dropout to the exponentials, after they have been summed. */
template <int M>
__device__ inline void drop_scores(float (&s)[M][KEYS / 8][4], const Problem &p, const HeadTile &mine,
                                   int row, int key) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const uint32_t draw = (uint32_t)*p.dropout.draw;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const float2 keep =
                    kept_two(p, draw, mine.b, mine.head, row + 16 * m + 8 * half + g, key + 8 * n + 2 * t);
                s[m][n][2 * half] *= keep.x;
                s[m][n][2 * half + 1] *= keep.y;
            }
}

/* Divides by the sums and writes lse. A row that saw no key becomes 0; one that saw a NaN stays NaN. */
template <int WIDTH, int M>
__device__ inline void finish(const Problem &p, Softmax<M> &state, float (&o)[M][WIDTH / 8][4], float *lse,
                              int row, float scale) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(state.sum[m][half]);
            const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                o[m][n][2 * half] *= inverse;
                o[m][n][2 * half + 1] *= inverse;
            }
            const int i = row + 16 * m + 8 * half + g;
            if (lse && t == 0 && i < p.queries)
                lse[i] = sum == 0.0f ? -INFINITY : (state.maximum[m][half] * scale + log2f(sum)) * LN_2;
        }
}

/* Anatomy. Parallel: over 64 or 128 queries of a head, a block each; a warp owns 16 or 32. Launch: queries /
 * 64 or / 128 x heads x batch blocks of 128. Holds: 122 to 255 registers, 25 to 102 KiB shared, some spill.
 * Occupancy: registers, by its bounds 3 or 4 blocks per multiprocessor for heads up to 64, 2 above. Reads:
 * asynchronous copies of 16 bytes, coalesced within a head's row, a tile ahead. Syncs: one barrier per tile
 * of 64 keys; shuffles in the softmax. Fusion: the rotary turn of q and k. */
template <int WIDTH, int M, bool DROP>
__global__ void __launch_bounds__(THREADS, WIDTH <= 64 ? 5 - M : 2)
    forward_kernel(const __grid_constant__ Problem p) {
    extern __shared__ uint4 shared_memory[];
    constexpr int QUERIES = 16 * M * WARPS, TILE = KEYS * PITCH<WIDTH>;
    bf16 *const queries = reinterpret_cast<bf16 *>(shared_memory); // (16 M * WARPS, D)
    bf16 *const keys = queries + QUERIES * PITCH<WIDTH>;           // 2 tiles of (64, D)
    bf16 *const values = keys + 2 * TILE;                          // 2 tiles of (64, D)

    const int tiles = (p.queries + QUERIES - 1) / QUERIES;
    const HeadTile mine = block_tile(tiles, p.heads);
    const int first = (tiles - 1 - mine.tile) * QUERIES; // longest tiles first
    const int warp = int(threadIdx.x) / 32, row = first + 16 * M * warp;
    const int length = key_length(p, mine.b), last = p.queries - 1;
    const int steps = (keys_seen(p, length, min(first + QUERIES - 1, last)) + KEYS - 1) / KEYS;
    const int seen = keys_seen(p, length, min(row + 16 * M - 1, last));   // keys that this warp's last row
                                                                          // sees
    const int unmasked = p.starts ? 0 : keys_seen(p, length, row) / KEYS; // tiles that all its rows see
                                                                          // completely
    const int first_step = first_key(p, mine.b, first) / (2 * KEYS) * 2;  // with two buffers, the first
                                                                          // tile's number must be even
    const bf16 *const k = head_rows<bf16>(p, p.k, mine.b, mine.head / p.group);
    const bf16 *const v = head_rows<bf16>(p, p.v, mine.b, mine.head / p.group);
    const float scale = p.scale * LOG2_E;

    load_tile<QUERIES, WIDTH>(queries, head_rows<bf16>(p, p.q, mine.b, mine.head), p.q.row, first, p.queries,
                              p.width, p.q.vector);
    load_tile<KEYS, WIDTH>(keys, k, p.k.row, first_step * KEYS, length, p.width, p.k.vector);
    load_tile<KEYS, WIDTH>(values, v, p.v.row, first_step * KEYS, length, p.width, p.v.vector);

    bf16 *const own = queries + 16 * M * warp * PITCH<WIDTH>;
    const Left<M, WIDTH, false> q(own);
    float o[M][WIDTH / 8][4];
    Softmax<M> state;
    clear(o);
    for (int m = 0; m < M; m++)
        for (int half = 0; half < 2; half++) state.maximum[m][half] = -INFINITY, state.sum[m][half] = 0.0f;

#pragma unroll 1
    for (int step = first_step; step < steps; step++) {
        copy_async_wait();
        __syncthreads(); // this tile has arrived, and all warps are done with the previous one
        if (step + 1 < steps) {
            const int next = (step + 1) % 2 * TILE;
            load_tile<KEYS, WIDTH>(keys + next, k, p.k.row, (step + 1) * KEYS, length, p.width, p.k.vector);
            load_tile<KEYS, WIDTH>(values + next, v, p.v.row, (step + 1) * KEYS, length, p.width, p.v.vector);
        }
        if (step * KEYS >= seen) continue;
        float s[M][KEYS / 8][4];
        uint32_t probabilities[M][KEYS / 16][4];
        multiply_transposed(s, q, keys + step % 2 * TILE, FromZero());
        if (step >= unmasked) mask(s, p, mine.b, length, row, step * KEYS);
        softmax_step<WIDTH>(state, s, o, scale);
        if constexpr (DROP) drop_scores(s, p, mine, row, step * KEYS);
        pack_left<M, KEYS / 8>(probabilities, s);
        multiply_rows<M, KEYS / 16, WIDTH>(o, probabilities, values + step % 2 * TILE);
    }

    copy_async_wait();
    __syncthreads(); // without any step, the queries are still being copied to where the output is staged
    float *const lse = p.lse ? p.lse + (int64_t(mine.b) * p.heads + mine.head) * p.queries : nullptr;
    finish<WIDTH>(p, state, o, lse, row, scale);
    store_rows<M, WIDTH>(o, own, head_rows<bf16>(p, p.y, mine.b, mine.head), p.y.row, row, p.queries, p.width,
                         p.y.vector);
}

template <int WIDTH, int M>
Status launch(Ctx *ctx, const Problem &p) {
    static_assert(SHARED<WIDTH, M> <= tensor_shared_bytes(WIDTH), "as the choice of a kernel assumes");
    const int64_t blocks = divide_up(p.queries, 16 * M * WARPS) * p.heads * p.batch;
    if (p.dropout.on())
        return LAUNCH(ctx, (forward_kernel<WIDTH, M, true>), blocks, THREADS, (SHARED<WIDTH, M>), p);
    return LAUNCH(ctx, (forward_kernel<WIDTH, M, false>), blocks, THREADS, (SHARED<WIDTH, M>), p);
}

} // namespace

Status forward_tensor(Ctx *ctx, const Problem *p) {
    const bool large = fills_device(ctx, int64_t(p->heads) * p->batch, p->queries);
    if (p->width <= 32) return large ? launch<32, 2>(ctx, *p) : launch<32, 1>(ctx, *p);
    if (p->width <= 64) return large ? launch<64, 2>(ctx, *p) : launch<64, 1>(ctx, *p);
    return large ? launch<128, 2>(ctx, *p) : launch<128, 1>(ctx, *p);
}

} // namespace attention
