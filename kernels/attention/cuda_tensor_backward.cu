/* Flash attention backward in bf16 through tensor cores. Dao et al. 2022, algorithm 4, as two kernels, so
 * that every sum has one owner and a fixed order (no atomics): one owns keys and passes over the queries for
 * dk and dv, of all heads of its group; the other owns queries and passes over the keys for dq. Both
 * recompute the probabilities from the saved lse. What a warp's rows are multiplied with stays in registers:
 * the first kernel computes scores transposed (keys x queries), so that p^T and ds^T are left operands as
 * they come. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/attention/cuda_tile.cuh"

namespace attention {
namespace {

/* The tiles that fit the registers. Keys kernel: 16 * M keys a warp, QUERIES queries a step. */
template <int WIDTH>
struct KeysTile {
    static constexpr int M = WIDTH <= 64 ? 2 : 1, KEYS = 16 * M * WARPS, QUERIES = WIDTH <= 64 ? 32 : 64;
    static constexpr size_t shared =
        sizeof(bf16) * PITCH<WIDTH> * (2 * KEYS + 4 * QUERIES) + sizeof(float2) * 2 * QUERIES;
};

/* Queries kernel: 16 * M queries a warp, KEYS keys a step; IN_REGISTERS: of q and dy. */
template <int WIDTH>
struct QueriesTile {
    static constexpr int M = 2, QUERIES = 16 * M * WARPS, KEYS = 32;
    static constexpr bool IN_REGISTERS = WIDTH <= 64;
    static constexpr size_t shared = sizeof(bf16) * PITCH<WIDTH> * (2 * QUERIES + 4 * KEYS);
};

/* Starts copying a tile of queries with their dy, lse and delta. */
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

/* Scores, transposed, to probabilities. `key` and `query` are the warp's and the tile's first. */
template <int M, int N>
__device__ inline void probabilities_transposed(const Problem &p, float (&s)[M][N][4],
                                                const float2 *statistics, int key, int query, bool masked) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float lse = statistics[8 * n + 2 * t + i].x;
            const int from_query = query + 8 * n + 2 * t + i + p.keys - p.queries;
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float &x = s[m][n][2 * half + i];
                    x = power_of_two(x * scale - lse);
                    if (masked && key + 16 * m + 8 * half + g > from_query) x = 0.0f;
                }
        }
}

/* dk and dv of one tile of keys. Queries beyond T are zeros with dy = 0 and pass nothing; keys at or beyond
 * the key length are computed from zeros and written as 0. */
template <int WIDTH>
__global__ void __launch_bounds__(THREADS, 2) keys_kernel(const __grid_constant__ Problem p) {
    using Tile = KeysTile<WIDTH>;
    constexpr int M = Tile::M, N = Tile::QUERIES / 8, STAGE = Tile::QUERIES * PITCH<WIDTH>;
    extern __shared__ uint4 shared_memory[];
    bf16 *const keys = reinterpret_cast<bf16 *>(shared_memory);
    bf16 *const values = keys + Tile::KEYS * PITCH<WIDTH>;
    bf16 *const queries = values + Tile::KEYS * PITCH<WIDTH>; // two stages
    bf16 *const dys = queries + 2 * STAGE;                    // two stages
    float2 *const statistics = reinterpret_cast<float2 *>(dys + 2 * STAGE);

    const Place place = block_place((p.keys + Tile::KEYS - 1) / Tile::KEYS, p.kv_heads);
    const int first = place.tile * Tile::KEYS, length = key_length(p, place.b);
    const int own = 16 * M * (int(threadIdx.x) / 32); // this warp's rows of the tile
    const int first_tile = first_query(p, first) / Tile::QUERIES;
    const int tiles = max(0, (p.queries + Tile::QUERIES - 1) / Tile::QUERIES - first_tile);
    const int steps = first < length ? tiles * p.group : 0; // all tiles of the group's first head, and so on

    load_tile<Tile::KEYS, WIDTH>(keys, head_rows<bf16>(p, p.k, place.b, place.head), p.k.row, first, length,
                                 p.width, p.k.vector);
    load_tile<Tile::KEYS, WIDTH>(values, head_rows<bf16>(p, p.v, place.b, place.head), p.v.row, first, length,
                                 p.width, p.v.vector);
    float dk[M][WIDTH / 8][4], dv[M][WIDTH / 8][4];
    clear(dk);
    clear(dv);

#pragma unroll 1
    for (int step = -1; step < steps; step++) {
        const int stage = step & 1, next = step + 1;
        if (step >= 0) {
            copy_async_wait();
            __syncthreads(); // this tile has arrived, and all warps are done with the one before
        }
        if (next < steps)
            load_queries<WIDTH, Tile::QUERIES>(p, queries + (next & 1) * STAGE, dys + (next & 1) * STAGE,
                                               statistics + (next & 1) * Tile::QUERIES, place.b,
                                               place.head * p.group + next / tiles,
                                               (first_tile + next % tiles) * Tile::QUERIES);
        if (step < 0) continue;

        const int query = (first_tile + step % tiles) * Tile::QUERIES;
        const bool masked = p.causal && first_query(p, first + Tile::KEYS - 1) > query;
        const bf16 *const q = queries + stage * STAGE, *const dy = dys + stage * STAGE;
        const float2 *const statistic = statistics + stage * Tile::QUERIES;
        float s[M][N][4], dp[M][N][4];
        uint32_t left[M][N / 2][4];
        clear(s);
        multiply_transposed<M, N, WIDTH>(s, keys + own * PITCH<WIDTH>, q);
        probabilities_transposed<M, N>(p, s, statistic, first + own, query, masked);
        pack_left<M, N>(left, s);
        multiply_rows<M, N / 2, WIDTH>(dv, left, dy);
        clear(dp);
        multiply_transposed<M, N, WIDTH>(dp, values + own * PITCH<WIDTH>, dy);
        const int t = int(threadIdx.x) % 4;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float delta = statistic[8 * n + 2 * t + i % 2].y;
#pragma unroll
                for (int m = 0; m < M; m++) s[m][n][i] *= dp[m][n][i] - delta;
            }
        pack_left<M, N>(left, s);
        multiply_rows<M, N / 2, WIDTH>(dk, left, q);
    }

    copy_async_wait();
    __syncthreads(); // with no step at all, keys and values are still on their way to where results are
                     // staged
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
    store_rows<M, WIDTH>(dk, keys + own * PITCH<WIDTH>, head_rows<bf16>(p, p.dk, place.b, place.head),
                         p.dk.row, first + own, p.keys, p.width, p.dk.vector);
    store_rows<M, WIDTH>(dv, values + own * PITCH<WIDTH>, head_rows<bf16>(p, p.dv, place.b, place.head),
                         p.dv.row, first + own, p.keys, p.width, p.dv.vector);
}

/* What the queries kernel multiplies from the left: a warp's rows of q or dy, in registers or read again from
 * shared memory for every tile. */
template <int M, int WIDTH, bool IN_REGISTERS>
struct Left {
    uint32_t fragments[IN_REGISTERS ? M : 1][IN_REGISTERS ? WIDTH / 16 : 1][4];
    const bf16 *tile;

    __device__ inline void load(const bf16 *rows) {
        tile = rows;
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int k = 0; k < WIDTH / 16; k++)
                    load_left<WIDTH>(fragments[m][k], rows + 16 * m * PITCH<WIDTH> + 16 * k);
        }
    }

    template <int N>
    __device__ inline void multiply(float (&c)[M][N][4], const bf16 *right) const {
        clear(c);
        if constexpr (IN_REGISTERS)
            multiply_transposed<M, N, WIDTH>(c, fragments, right);
        else
            multiply_transposed<M, N, WIDTH>(c, tile, right);
    }
};

/* ds = p (dp - delta) into s, with p = 2^(s scale - lse) where the key may be seen and 0 elsewhere. */
template <int M, int N>
__device__ inline void score_gradients(const Problem &p, float (&s)[M][N][4], const float (&dp)[M][N][4],
                                       const float2 (&statistics)[M][2], int length, int row, int key,
                                       bool masked) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    const float scale = p.scale * LOG2_E;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int seen = keys_seen(p, length, row + 16 * m + 8 * half + g) - key - 2 * t;
            const float2 statistic = statistics[m][half];
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &x = s[m][n][2 * half + i];
                    x = power_of_two(x * scale - statistic.x) * (dp[m][n][2 * half + i] - statistic.y);
                    if (masked && 8 * n + i >= seen) x = 0.0f;
                }
        }
}

/* dq of one tile of queries. */
template <int WIDTH>
__global__ void __launch_bounds__(THREADS, 2) queries_kernel(const __grid_constant__ Problem p) {
    using Tile = QueriesTile<WIDTH>;
    constexpr int M = Tile::M, N = Tile::KEYS / 8, STAGE = Tile::KEYS * PITCH<WIDTH>;
    extern __shared__ uint4 shared_memory[];
    bf16 *const queries = reinterpret_cast<bf16 *>(shared_memory);
    bf16 *const dys = queries + Tile::QUERIES * PITCH<WIDTH>;
    bf16 *const keys = dys + Tile::QUERIES * PITCH<WIDTH>; // two stages
    bf16 *const values = keys + 2 * STAGE;                 // two stages

    const int tiles = (p.queries + Tile::QUERIES - 1) / Tile::QUERIES;
    const Place place = block_place(tiles, p.heads);
    const int first = (tiles - 1 - place.tile) * Tile::QUERIES; // the longest first
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, row = first + 16 * M * warp;
    const int length = key_length(p, place.b);
    const int last = min(first + Tile::QUERIES, p.queries) - 1;
    const int steps = (keys_seen(p, length, last) + Tile::KEYS - 1) / Tile::KEYS;
    const int unmasked = keys_seen(p, length, first) / Tile::KEYS; // tiles that every row sees whole
    const bf16 *const k = head_rows<bf16>(p, p.k, place.b, place.head / p.group);
    const bf16 *const v = head_rows<bf16>(p, p.v, place.b, place.head / p.group);

    load_tile<Tile::QUERIES, WIDTH>(queries, head_rows<bf16>(p, p.q, place.b, place.head), p.q.row, first,
                                    p.queries, p.width, p.q.vector);
    load_tile<Tile::QUERIES, WIDTH>(dys, head_rows<bf16>(p, p.dy, place.b, place.head), p.dy.row, first,
                                    p.queries, p.width, p.dy.vector);
    load_tile<Tile::KEYS, WIDTH>(keys, k, p.k.row, 0, length, p.width, p.k.vector);
    load_tile<Tile::KEYS, WIDTH>(values, v, p.v.row, 0, length, p.width, p.v.vector);

    float2 statistics[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = row + 16 * m + 8 * half + lane / 4;
            statistics[m][half] = make_float2(0.0f, 0.0f);
            if (i < p.queries)
                statistics[m][half] = p.statistics[(int64_t(place.b) * p.heads + place.head) * p.queries + i];
        }
    copy_async_wait();
    __syncthreads();
    Left<M, WIDTH, Tile::IN_REGISTERS> q, dy;
    q.load(queries + 16 * M * warp * PITCH<WIDTH>);
    dy.load(dys + 16 * M * warp * PITCH<WIDTH>);
    float dq[M][WIDTH / 8][4];
    clear(dq);

#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        copy_async_wait();
        __syncthreads(); // this tile has arrived, and all warps are done with the one before
        const int stage = step % 2 * STAGE, next = (step + 1) % 2 * STAGE;
        if (step + 1 < steps) {
            const int key = (step + 1) * Tile::KEYS;
            load_tile<Tile::KEYS, WIDTH>(keys + next, k, p.k.row, key, length, p.width, p.k.vector);
            load_tile<Tile::KEYS, WIDTH>(values + next, v, p.v.row, key, length, p.width, p.v.vector);
        }
        float s[M][N][4], dp[M][N][4];
        uint32_t left[M][N / 2][4];
        q.multiply(s, keys + stage);
        dy.multiply(dp, values + stage);
        score_gradients<M, N>(p, s, dp, statistics, length, row, step * Tile::KEYS, step >= unmasked);
        pack_left<M, N>(left, s);
        multiply_rows<M, N / 2, WIDTH>(dq, left, keys + stage);
    }

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) dq[m][n][i] *= p.scale;
    store_rows<M, WIDTH>(dq, queries + 16 * M * warp * PITCH<WIDTH>,
                         head_rows<bf16>(p, p.dq, place.b, place.head), p.dq.row, row, p.queries, p.width,
                         p.dq.vector);
}

template <int WIDTH>
Status launch(Ctx *ctx, const Problem &p) {
    static_assert(KeysTile<WIDTH>::shared <= tensor_shared_bytes(WIDTH), "as the choice of a kernel assumes");
    static_assert(QueriesTile<WIDTH>::shared <= tensor_shared_bytes(WIDTH), "likewise");
    const int64_t key_tiles = divide_up(p.keys, KeysTile<WIDTH>::KEYS);
    const int64_t query_tiles = divide_up(p.queries, QueriesTile<WIDTH>::QUERIES);
    TRY(LAUNCH(ctx, keys_kernel<WIDTH>, key_tiles * p.kv_heads * p.batch, THREADS, KeysTile<WIDTH>::shared,
               p));
    return LAUNCH(ctx, queries_kernel<WIDTH>, query_tiles * p.heads * p.batch, THREADS,
                  QueriesTile<WIDTH>::shared, p);
}

} // namespace

Status backward_tensor(Ctx *ctx, const Problem *p) {
    return p->width <= 64 ? launch<64>(ctx, *p) : launch<128>(ctx, *p);
}

} // namespace attention
