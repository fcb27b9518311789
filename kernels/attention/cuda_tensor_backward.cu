/* Flash attention backward in bf16 on tensor cores. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/attention/cuda_tile.cuh"

/* Dao et al. 2022, algorithm 4, as two kernels, so that every sum has one owner and a fixed order (no
 * atomics): one kernel owns keys and passes over the queries of all heads of its group for dk and dv; the
 * other owns queries and passes over the keys for dq. Both recompute the probabilities from the saved lse. A
 * warp's left operands stay in registers: the first kernel computes scores transposed (keys x queries), so
 * that p^T and ds^T are left operands directly. */

namespace attention {
namespace {

/* Tile sizes that fit the registers. M is 2, or 1 if that would make too few blocks to fill the device. Keys
 * kernel: 16 * M keys per warp; QUERIES queries are loaded at a time, and PART of them processed at a
 * time. */
template <int WIDTH, int ROWS>
struct KeysTile {
    static constexpr int M = ROWS, KEYS = 16 * M * WARPS, QUERIES = 64, PART = 64 / M;
    static constexpr int BLOCKS = WIDTH <= 64 ? 4 - M : 2; // blocks per multiprocessor
    static constexpr size_t shared =
        sizeof(bf16) * PITCH<WIDTH> * (2 * KEYS + 4 * QUERIES) + sizeof(float2) * 2 * QUERIES;
};

/* Queries kernel: 16 * M queries per warp; KEYS keys are loaded at a time. */
template <int WIDTH, int ROWS>
struct QueriesTile {
    static constexpr int M = ROWS, QUERIES = 16 * M * WARPS, KEYS = WIDTH <= 64 ? 64 : 32, PART = 32;
    static constexpr int BLOCKS = WIDTH <= 64 ? 4 - M : 2;
    static constexpr bool IN_REGISTERS = WIDTH <= 64; // q and dy
    static constexpr size_t shared = sizeof(bf16) * PITCH<WIDTH> * (2 * QUERIES + 4 * KEYS);
};

/* Starts the copy of a tile of queries with their dy, lse and delta. */
template <int WIDTH, int QUERIES>
__device__ inline void load_queries(const Problem &p, bf16 *q, bf16 *dy, float2 *statistics, int b, int head,
                                    int first) {
    load_tile<QUERIES, WIDTH>(q, head_rows<bf16>(p, p.q, b, head), p.q.row, first, p.queries, p.width,
                              p.q.vector);
    load_tile<QUERIES, WIDTH>(dy, head_rows<bf16>(p, p.dy, b, head), p.dy.row, first, p.queries, p.width,
                              p.dy.vector);
    const int i = int(threadIdx.x);
    if (i >= QUERIES) return;
    const float2 *from = p.statistics + (int64_t(b) * p.heads + head) * p.queries;
    const bool inside = first + i < p.queries;
    copy_async_8(statistics + i, inside ? from + first + i : from, inside);
}

/* Replaces transposed scores by probabilities. `key` and `query` are the first of the rows and columns, in
 * batch row b. */
template <int M, int N>
__device__ inline void probabilities_transposed(const Problem &p, float (&s)[M][N][4],
                                                const float2 *statistics, int b, int key, int query) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * LOG2_E;
    const bool masked = first_query(p, key + 16 * M - 1) > query;
    const int seen =
        query + 2 * t + p.keys - p.queries - key - g; // the last row that column 2 t sees, minus g
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float4 two = *reinterpret_cast<const float4 *>(statistics + 8 * n + 2 * t);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = power_of_two(s[m][n][i] * scale - (i % 2 ? two.z : two.x));
    }
    if (p.starts) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int from = first_key(p, b, query + 8 * n + 2 * t + i % 2) - key - g;
#pragma unroll
                for (int m = 0; m < M; m++)
                    if (16 * m + i / 2 * 8 < from) s[m][n][i] = 0.0f;
            }
    }
    if (!masked) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (16 * m + i / 2 * 8 > seen + 8 * n + i % 2) s[m][n][i] = 0.0f;
}

/* dp^T starts from -delta of its column. */
struct FromDelta {
    const float2 *statistics; // statistics of column 2 t
    __device__ inline void operator()(int, int n, float (&start)[4]) const {
        const float4 two = *reinterpret_cast<const float4 *>(statistics + 8 * n);
        start[0] = start[2] = -two.y;
        start[1] = start[3] = -two.w;
    }
};

/* The dropout factor of each probability of a tile of keys (rows) and queries (columns). */
template <int M, int N>
__device__ inline void masks_transposed(const Problem &p, float (&keep)[M][N][4], const HeadTile &mine,
                                        int head, int key, int query) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const uint32_t draw = (uint32_t)*p.dropout.draw;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                keep[m][n][i] =
                    kept(p, draw, mine.b, head, query + 8 * n + 2 * t + i % 2, key + 16 * m + i / 2 * 8 + g);
}

/* With dropout, dv reads the dropped-out P, and ds = P (keep dp - delta). */
template <int M, int N, int WIDTH>
__device__ inline void add_dropped_queries(const Problem &p, float (&dk)[M][WIDTH / 8][4],
                                           float (&dv)[M][WIDTH / 8][4], const bf16 *keys, const bf16 *values,
                                           const bf16 *q, const bf16 *dy, const float2 *statistics, int key,
                                           int query, const HeadTile &mine, int head) {
    const Left<M, WIDTH, false> k(keys), v(values);
    float s[M][N][4], dp[M][N][4], keep[M][N][4];
    uint32_t left[M][N / 2][4];
    multiply_transposed(s, k, q, FromZero());
    probabilities_transposed(p, s, statistics, mine.b, key, query);
    masks_transposed(p, keep, mine, head, key, query);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) dp[m][n][i] = s[m][n][i] * keep[m][n][i];
    pack_left<M, N>(left, dp);
    multiply_rows<M, N / 2, WIDTH>(dv, left, dy);
    multiply_transposed(dp, v, dy, FromZero());
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float4 two = *reinterpret_cast<const float4 *>(statistics + 8 * n + 2 * (threadIdx.x % 4));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] *= dp[m][n][i] * keep[m][n][i] - (i % 2 ? two.w : two.y);
    }
    pack_left<M, N>(left, s);
    multiply_rows<M, N / 2, WIDTH>(dk, left, q);
}

/* Adds the contribution of 8 * N queries to dk (not yet times scale) and dv of a warp's keys. */
template <int M, int N, int WIDTH>
__device__ inline void add_queries(const Problem &p, float (&dk)[M][WIDTH / 8][4],
                                   float (&dv)[M][WIDTH / 8][4], const bf16 *keys, const bf16 *values,
                                   const bf16 *q, const bf16 *dy, const float2 *statistics, int b, int key,
                                   int query) {
    const Left<M, WIDTH, false> k(keys), v(values);
    float s[M][N][4], dp[M][N][4];
    uint32_t left[M][N / 2][4];
    multiply_transposed(s, k, q, FromZero());
    probabilities_transposed(p, s, statistics, b, key, query);
    pack_left<M, N>(left, s);
    multiply_rows<M, N / 2, WIDTH>(dv, left, dy);
    multiply_transposed(dp, v, dy, FromDelta{statistics + 2 * (threadIdx.x % 4)});
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] *= dp[m][n][i];
    pack_left<M, N>(left, s);
    multiply_rows<M, N / 2, WIDTH>(dk, left, q);
}

/* dk and dv of one tile of keys. Queries beyond T are zeros with dy = 0 and contribute nothing; keys at or
 * beyond the key length are computed from zeros and written as 0. */
/* Anatomy. Parallel: over 64 or 128 keys of a key head, a block each; a warp owns 16 or 32. Launch: keys / 64
 * or / 128 x key heads x batch blocks of 128. Holds: 146 to 255 registers, 31 to 103 KiB shared, some spill.
 * Occupancy: registers, by its bounds 2 or 3 blocks per multiprocessor, 1 with dropout. Reads: asynchronous
 * copies of 16 bytes, coalesced within a head's row, a tile ahead. Syncs: one barrier per tile of 64 queries.
 * Fusion: with queries_kernel, as on Hopper; the rotary turn back. */
template <int WIDTH, class Tile, bool DROP>
__global__ void __launch_bounds__(THREADS, DROP ? 1 : Tile::BLOCKS)
    keys_kernel(const __grid_constant__ Problem p) {
    constexpr int M = Tile::M, STAGE = Tile::QUERIES * PITCH<WIDTH>;
    extern __shared__ uint4 shared_memory[];
    bf16 *const keys = reinterpret_cast<bf16 *>(shared_memory);
    bf16 *const values = keys + Tile::KEYS * PITCH<WIDTH>;
    bf16 *const queries = values + Tile::KEYS * PITCH<WIDTH>; // two stages
    bf16 *const dys = queries + 2 * STAGE;                    // two stages
    float2 *const statistics = reinterpret_cast<float2 *>(dys + 2 * STAGE);

    const HeadTile mine = block_tile((p.keys + Tile::KEYS - 1) / Tile::KEYS, p.kv_heads);
    const int first = mine.tile * Tile::KEYS, length = key_length(p, mine.b);
    const int own = 16 * M * (int(threadIdx.x) / 32); // this warp's rows of the tile
    // all tiles of queries of the group's first head, then of its second, and so on
    const int first_tile = first_query(p, first) / Tile::QUERIES;
    const int last_tile = (p.queries - 1) / Tile::QUERIES;
    const int steps = first < length ? max(0, last_tile - first_tile + 1) * p.group : 0;
    int tile = first_tile, head = mine.head * p.group;

    load_tile<Tile::KEYS, WIDTH>(keys, head_rows<bf16>(p, p.k, mine.b, mine.head), p.k.row, first, length,
                                 p.width, p.k.vector);
    load_tile<Tile::KEYS, WIDTH>(values, head_rows<bf16>(p, p.v, mine.b, mine.head), p.v.row, first, length,
                                 p.width, p.v.vector);
    if (steps > 0)
        load_queries<WIDTH, Tile::QUERIES>(p, queries, dys, statistics, mine.b, head, tile * Tile::QUERIES);
    float dk[M][WIDTH / 8][4], dv[M][WIDTH / 8][4];
    clear(dk);
    clear(dv);

#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        copy_async_wait();
        __syncthreads(); // this tile has arrived, and all warps are done with the previous one
        const int stage = step % 2, next = (step + 1) % 2, query = tile * Tile::QUERIES, of = head;
        if (tile++ == last_tile) tile = first_tile, head++;
        if (step + 1 < steps)
            load_queries<WIDTH, Tile::QUERIES>(p, queries + next * STAGE, dys + next * STAGE,
                                               statistics + next * Tile::QUERIES, mine.b, head,
                                               tile * Tile::QUERIES);
#pragma unroll 1
        for (int part = 0; part < Tile::QUERIES; part += Tile::PART) {
            const bool any = first_query(p, first + own) < min(query + part + Tile::PART, p.queries);
            const int at = stage * STAGE + part * PITCH<WIDTH>;
            if (!any || first + own >= length) continue;
            if (first_key(p, mine.b, query + part) >= first + own + 16 * M)
                continue; // queries of another
                          // document
            const bf16 *k = keys + own * PITCH<WIDTH>, *v = values + own * PITCH<WIDTH>;
            const float2 *rows = statistics + stage * Tile::QUERIES + part;
            if constexpr (DROP)
                add_dropped_queries<M, Tile::PART / 8, WIDTH>(p, dk, dv, k, v, queries + at, dys + at, rows,
                                                              first + own, query + part, mine, of);
            else
                add_queries<M, Tile::PART / 8, WIDTH>(p, dk, dv, k, v, queries + at, dys + at, rows, mine.b,
                                                      first + own, query + part);
        }
    }

    copy_async_wait();
    __syncthreads(); // if there was no step, the keys are still being copied to the memory of the staged
                     // results
    const int g = int(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool counts = first + own + 16 * m + i / 2 * 8 + g < length;
                dk[m][n][i] = counts ? dk[m][n][i] * p.scale : 0.0f;
                dv[m][n][i] = counts ? dv[m][n][i] : 0.0f;
            }
    store_rows<M, WIDTH>(dk, keys + own * PITCH<WIDTH>, head_rows<bf16>(p, p.dk, mine.b, mine.head), p.dk.row,
                         first + own, p.keys, p.width, p.dk.vector);
    store_rows<M, WIDTH>(dv, values + own * PITCH<WIDTH>, head_rows<bf16>(p, p.dv, mine.b, mine.head),
                         p.dv.row, first + own, p.keys, p.width, p.dv.vector);
}

/* dp starts from -delta of its row. */
template <int M>
struct FromRowDelta {
    const float2 (&statistics)[M][2];
    __device__ inline void operator()(int m, int, float (&start)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) start[i] = -statistics[m][i / 2].y;
    }
};

/* Replaces dp by keep * dp - delta, for a dp that does not include delta yet. */
template <int M, int N>
__device__ inline void drop_gradients(const Problem &p, float (&dp)[M][N][4],
                                      const float2 (&statistics)[M][2], const HeadTile &mine, int row,
                                      int key) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const uint32_t draw = (uint32_t)*p.dropout.draw;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float2 keep =
                    kept_two(p, draw, mine.b, mine.head, row + 16 * m + 8 * half + g, key + 8 * n + 2 * t);
                dp[m][n][2 * half] = dp[m][n][2 * half] * keep.x - statistics[m][half].y;
                dp[m][n][2 * half + 1] = dp[m][n][2 * half + 1] * keep.y - statistics[m][half].y;
            }
}

/* Replaces s by ds = p (dp - delta), with p = 2^(s scale - lse) for visible keys and 0 for others; dp already
 * includes -delta. */
template <int M, int N>
__device__ inline void score_gradients(const Problem &p, float (&s)[M][N][4], const float (&dp)[M][N][4],
                                       const float2 (&statistics)[M][2], int b, int length, int row, int key,
                                       bool masked) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * LOG2_E;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = power_of_two(s[m][n][i] * scale - statistics[m][i / 2].x) * dp[m][n][i];
    if (!masked) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = row + 16 * m + 8 * half + g, first = key + 2 * t;
            const int seen = keys_seen(p, length, query) - first, from = first_key(p, b, query) - first;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (8 * n + i >= seen || 8 * n + i < from) s[m][n][2 * half + i] = 0.0f;
        }
}

/* dq of one tile of queries. */
/* Anatomy. Parallel: over 64 or 128 queries of a head, a block each; a warp owns 16 or 32. Launch: queries /
 * 64 or / 128 x heads x batch blocks of 128. Holds: 124 to 255 registers, 30 to 102 KiB shared, some spill.
 * Occupancy: registers, by its bounds 2 or 3 blocks per multiprocessor, 1 with dropout. Reads: asynchronous
 * copies of 16 bytes, coalesced within a head's row, a tile ahead. Syncs: one barrier per tile of 32 or 64
 * keys. Fusion: with keys_kernel, as on Hopper; the rotary turn back. */
template <int WIDTH, class Tile, bool DROP>
__global__ void __launch_bounds__(THREADS, DROP ? 1 : Tile::BLOCKS)
    queries_kernel(const __grid_constant__ Problem p) {
    constexpr int M = Tile::M, N = Tile::PART / 8, STAGE = Tile::KEYS * PITCH<WIDTH>;
    extern __shared__ uint4 shared_memory[];
    bf16 *const queries = reinterpret_cast<bf16 *>(shared_memory);
    bf16 *const dys = queries + Tile::QUERIES * PITCH<WIDTH>;
    bf16 *const keys = dys + Tile::QUERIES * PITCH<WIDTH>; // two stages
    bf16 *const values = keys + 2 * STAGE;                 // two stages

    const int tiles = (p.queries + Tile::QUERIES - 1) / Tile::QUERIES;
    const HeadTile mine = block_tile(tiles, p.heads);
    const int first = (tiles - 1 - mine.tile) * Tile::QUERIES; // longest tiles first
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, row = first + 16 * M * warp;
    const int length = key_length(p, mine.b), last = p.queries - 1;
    const int steps =
        (keys_seen(p, length, min(first + Tile::QUERIES - 1, last)) + Tile::KEYS - 1) / Tile::KEYS;
    const int seen = keys_seen(p, length, min(row + 16 * M - 1, last)); // keys that this warp's last row sees
    const int whole = p.starts ? 0 : keys_seen(p, length, row);         // keys that its first row, and so
                                                                        // every row, sees
    const int first_step =
        first_key(p, mine.b, first) / (2 * Tile::KEYS) * 2; // with two buffers, the first tile's number must
                                                            // be even
    const bf16 *const k = head_rows<bf16>(p, p.k, mine.b, mine.head / p.group);
    const bf16 *const v = head_rows<bf16>(p, p.v, mine.b, mine.head / p.group);

    load_tile<Tile::QUERIES, WIDTH>(queries, head_rows<bf16>(p, p.q, mine.b, mine.head), p.q.row, first,
                                    p.queries, p.width, p.q.vector);
    load_tile<Tile::QUERIES, WIDTH>(dys, head_rows<bf16>(p, p.dy, mine.b, mine.head), p.dy.row, first,
                                    p.queries, p.width, p.dy.vector);
    load_tile<Tile::KEYS, WIDTH>(keys, k, p.k.row, first_step * Tile::KEYS, length, p.width, p.k.vector);
    load_tile<Tile::KEYS, WIDTH>(values, v, p.v.row, first_step * Tile::KEYS, length, p.width, p.v.vector);

    float2 statistics[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = row + 16 * m + 8 * half + lane / 4;
            statistics[m][half] = make_float2(0.0f, 0.0f);
            if (i < p.queries)
                statistics[m][half] = p.statistics[(int64_t(mine.b) * p.heads + mine.head) * p.queries + i];
        }
    copy_async_wait();
    __syncthreads();
    bf16 *const own = queries + 16 * M * warp * PITCH<WIDTH>;
    const Left<M, WIDTH, Tile::IN_REGISTERS> q(own), dy(dys + 16 * M * warp * PITCH<WIDTH>);
    float dq[M][WIDTH / 8][4];
    clear(dq);

#pragma unroll 1
    for (int step = first_step; step < steps; step++) {
        copy_async_wait();
        __syncthreads(); // this tile has arrived, and all warps are done with the previous one
        const int stage = step % 2 * STAGE, next = (step + 1) % 2 * STAGE;
        if (step + 1 < steps) {
            const int key = (step + 1) * Tile::KEYS;
            load_tile<Tile::KEYS, WIDTH>(keys + next, k, p.k.row, key, length, p.width, p.k.vector);
            load_tile<Tile::KEYS, WIDTH>(values + next, v, p.v.row, key, length, p.width, p.v.vector);
        }
#pragma unroll 1
        for (int part = 0; part < Tile::KEYS; part += Tile::PART) {
            const int key = step * Tile::KEYS + part;
            if (key >= seen) continue;
            float s[M][N][4], dp[M][N][4];
            uint32_t left[M][N / 2][4];
            multiply_transposed(s, q, keys + stage + part * PITCH<WIDTH>, FromZero());
            if constexpr (DROP) {
                multiply_transposed(dp, dy, values + stage + part * PITCH<WIDTH>, FromZero());
                drop_gradients<M, N>(p, dp, statistics, mine, row, key);
            } else {
                multiply_transposed(dp, dy, values + stage + part * PITCH<WIDTH>,
                                    FromRowDelta<M>{statistics});
            }
            score_gradients<M, N>(p, s, dp, statistics, mine.b, length, row, key, key + Tile::PART > whole);
            pack_left<M, N>(left, s);
            multiply_rows<M, N / 2, WIDTH>(dq, left, keys + stage + part * PITCH<WIDTH>);
        }
    }

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) dq[m][n][i] *= p.scale;
    store_rows<M, WIDTH>(dq, own, head_rows<bf16>(p, p.dq, mine.b, mine.head), p.dq.row, row, p.queries,
                         p.width, p.dq.vector);
}

template <int WIDTH, int ROWS>
Status launch_keys(Ctx *ctx, const Problem &p) {
    using Tile = KeysTile<WIDTH, ROWS>;
    static_assert(Tile::shared <= tensor_shared_bytes(WIDTH), "as the choice of a kernel assumes");
    const int64_t blocks = divide_up(p.keys, Tile::KEYS) * p.kv_heads * p.batch;
    if (p.dropout.on())
        return LAUNCH(ctx, (keys_kernel<WIDTH, Tile, true>), blocks, THREADS, Tile::shared, p);
    return LAUNCH(ctx, (keys_kernel<WIDTH, Tile, false>), blocks, THREADS, Tile::shared, p);
}

template <int WIDTH, int ROWS>
Status launch_queries(Ctx *ctx, const Problem &p) {
    using Tile = QueriesTile<WIDTH, ROWS>;
    static_assert(Tile::shared <= tensor_shared_bytes(WIDTH), "as the choice of a kernel assumes");
    const int64_t blocks = divide_up(p.queries, Tile::QUERIES) * p.heads * p.batch;
    if (p.dropout.on())
        return LAUNCH(ctx, (queries_kernel<WIDTH, Tile, true>), blocks, THREADS, Tile::shared, p);
    return LAUNCH(ctx, (queries_kernel<WIDTH, Tile, false>), blocks, THREADS, Tile::shared, p);
}

template <int WIDTH>
Status launch(Ctx *ctx, const Problem &p) {
    constexpr int MOST = WIDTH <= 64 ? 2 : 1; // rows in units of 16 per warp, as the registers for dk and dv
                                              // allow
    if (fills_device(ctx, int64_t(p.kv_heads) * p.batch, p.keys))
        TRY((launch_keys<WIDTH, MOST>(ctx, p)));
    else
        TRY((launch_keys<WIDTH, 1>(ctx, p)));
    return fills_device(ctx, int64_t(p.heads) * p.batch, p.queries) ? launch_queries<WIDTH, 2>(ctx, p)
                                                                    : launch_queries<WIDTH, 1>(ctx, p);
}

} // namespace

Status backward_tensor(Ctx *ctx, const Problem *p) {
    if (p->width <= 32) return launch<32>(ctx, *p);
    return p->width <= 64 ? launch<64>(ctx, *p) : launch<128>(ctx, *p);
}

} // namespace attention
