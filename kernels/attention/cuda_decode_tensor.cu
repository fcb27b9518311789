/* Attention of a few queries in bf16 on tensor cores, in the order of cuda_order.cuh. */
#include "kernels/attention/cuda_decode.cuh"
#include "kernels/attention/cuda_order.cuh"
#include "kernels/attention/cuda_tile.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/words.cuh"

/* The rows of a product are up to 16 queries: those of the heads that share keys and values, and neighbouring
 * queries of them. Where there are many queries, a block has two products. A block takes a tile of keys after
 * another, of which three are in shared memory; its warps divide the tile's keys among them for the scores,
 * and the columns of the values for the output. A few queries of many keys have a cluster of blocks, which
 * take a tile each; the first block merges all. */

namespace attention {
namespace {

constexpr int ROWS = 16, KEYS = ORDER_KEYS; // of a product; of a tile
constexpr int STAGES = 3, CLUSTER = 8;      // tiles in shared memory; most blocks of a cluster

template <int WIDTH, int M>
struct Room {
    static constexpr int FOURS = M * (WIDTH / 32 + 1); // of a thread's result: its columns, bases and sums

    bf16 keys[STAGES][KEYS * WIDTH], values[STAGES][KEYS * WIDTH];
    bf16 queries[ROWS * M * PITCH<WIDTH>], probabilities[ROWS * M * PITCH<KEYS>];
    float maxima[WARPS][ROWS * M], sums[WARPS][ROWS * M][4];
    uint64_t received;
    alignas(16) float results[CLUSTER - 1][FOURS][THREADS][4]; // those of the other blocks, if there are some
};
template <int WIDTH, int M>
constexpr size_t shared_bytes(int blocks) {
    typedef Room<WIDTH, M> R;
    return sizeof(R) - (CLUSTER - blocks) * sizeof(((R *)nullptr)->results[0]);
}

/* Starts the copies of a tile's rows from key `first` on; those from `end` on become zero. */
template <int WIDTH>
__device__ inline void start_tile(bf16 *tile, const Problem &p, const Rows &cached, const Rows &fresh,
                                  const HeadTile &mine, int first, int past, int end) {
    constexpr int VECTORS = WIDTH / 8;
    const int head = mine.head / p.group, column = int(threadIdx.x) % VECTORS * 8;
    const bf16 *const old_rows = head_rows<bf16>(p, cached, mine.b, head) + column;
    const bf16 *const new_rows = head_rows<bf16>(p, fresh, mine.b, head) + column;
    const int old_stride = int(cached.row), new_stride = int(fresh.row);
#pragma unroll
    for (int i = 0; i < KEYS * VECTORS / THREADS; i++) {
        const int row = i * (THREADS / VECTORS) + int(threadIdx.x) / VECTORS, key = first + row;
        const bool inside = key < end && column < p.width;
        const bf16 *const from =
            key < past ? old_rows + int64_t(key) * old_stride : new_rows + int64_t(key - past) * new_stride;
        copy_async_16(tile + eight_columns<WIDTH>(row, column / 8), inside ? from : old_rows - column,
                      inside);
    }
}

/* Puts the rows of queries in shared memory. A warp takes every fourth row. */
template <int WIDTH, int M>
__device__ inline void load_queries(const Problem &p, const BlockRows &rows, bf16 *queries) {
    constexpr int EACH = ROWS * M / WARPS;
    const int warp = int(threadIdx.x) / 32, column = int(threadIdx.x) % 32 * 8, count = rows.count();
    Words words[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int row = warp + i * WARPS;
        const HeadTile at = rows.at(row);
        words[i] = {};
        if (row < count && column < p.width && at.tile < p.queries)
            words[i] = load_words(head_rows<bf16>(p, p.q, at.b, at.head) + at.tile * p.q.row + column);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (column < WIDTH) store_words(queries + (warp + i * WARPS) * PITCH<WIDTH> + column, words[i]);
}

/* ---- a tile ---- */

/* The results of a thread: its columns of the values' sums, and for each of its rows the base and its part of
 * the sum. */
template <int WIDTH, int M>
struct Result {
    float o[M][WIDTH / 32][4], base[M][2], sum[M][2];

    __device__ void merge(const Result &next) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const Merge both(base[m][half], next.base[m][half]);
                sum[m][half] = both(sum[m][half], next.sum[m][half]);
#pragma unroll
                for (int n = 0; n < WIDTH / 32; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++)
                        o[m][n][i] = both(o[m][n][i], next.o[m][n][i]);
            }
    }
};

/* s = q k^T of a warp's 16 keys. All operands are loaded before the first product. */
template <int WIDTH, int M>
__device__ inline void multiply_scores(float (&s)[M][2][4], const bf16 *queries, const bf16 *keys) {
    const int lane = int(threadIdx.x) % 32, row = lane % 8 + lane / 16 * 8;
    uint32_t left[WIDTH / 16][M][4], right[WIDTH / 16][4];
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        load_matrices(right[k], keys + eight_columns<WIDTH>(row, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < M; m++) load_left<WIDTH>(left[k][m], queries + 16 * m * PITCH<WIDTH> + 16 * k);
    }
    clear(s);
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply(s[m][0], left[k][m], right[k][0], right[k][1], s[m][0]);
            multiply(s[m][1], left[k][m], right[k][2], right[k][3], s[m][1]);
        }
}

/* The result of the tile of keys from `first` on, of which this thread's rows see those before `seen`. */
template <int WIDTH, int M>
__device__ inline void attend(Room<WIDTH, M> &room, int stage, int first, const int (&seen)[M][2],
                              float scale, Result<WIDTH, M> &result) {
    constexpr int OWN = KEYS / WARPS; // keys of a warp
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    float s[M][OWN / 8][4];
    multiply_scores<WIDTH, M>(s, room.queries, room.keys[stage] + warp * OWN * WIDTH);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float maximum = -INFINITY;
#pragma unroll
            for (int n = 0; n < OWN / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    if (first + warp * OWN + 8 * n + 2 * t + i % 2 >= seen[m][half]) s[m][n][i] = -INFINITY;
                    maximum = fmaxf(maximum, s[m][n][i]);
                }
            maximum = quad_max(maximum);
            if (t == 0) room.maxima[warp][16 * m + 8 * half + g] = maximum;
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = 16 * m + 8 * half + g;
            float maximum = room.maxima[0][row];
#pragma unroll
            for (int w = 1; w < WARPS; w++) maximum = fmaxf(maximum, room.maxima[w][row]);
            const float base = result.base[m][half] = base_of(maximum, scale);
#pragma unroll
            for (int n = 0; n < OWN / 8; n++) {
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    s[m][n][i] = probability(s[m][n][i], scale, base);
                *reinterpret_cast<uint32_t *>(room.probabilities + row * PITCH<KEYS> + warp * OWN + 8 * n +
                                              2 * t) = pack(s[m][n][2 * half], s[m][n][2 * half + 1]);
            }
            room.sums[warp][row][t] = quarter_sum(s[m], 0, OWN / 8, half);
        }
    __syncthreads();
    clear(result.o);
    uint32_t left[KEYS / 16][M][4], right[KEYS / 16][WIDTH / 64][4];
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
#pragma unroll
        for (int m = 0; m < M; m++)
            load_left<KEYS>(left[k][m], room.probabilities + 16 * m * PITCH<KEYS> + 16 * k);
#pragma unroll
        for (int n = 0; n < WIDTH / 64; n++)
            load_matrices_transposed(
                right[k][n],
                room.values[stage] +
                    eight_columns<WIDTH>(16 * k + lane % 16, warp * (WIDTH / 32) + 2 * n + lane / 16));
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int n = 0; n < WIDTH / 32; n++)
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply(result.o[m][n], left[k][m], right[k][n / 2][n % 2 * 2],
                         right[k][n / 2][n % 2 * 2 + 1], result.o[m][n]);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = room.sums[0][16 * m + 8 * half + g][t];
#pragma unroll
            for (int w = 1; w < WARPS; w++) sum += room.sums[w][16 * m + 8 * half + g][t];
            result.sum[m][half] = sum;
        }
}

/* ---- between the blocks of a cluster ---- */

/* Sends the result to the first block, where the same thread reads it. */
template <int WIDTH, int M>
__device__ inline void send(Room<WIDTH, M> &room, int rank, const Result<WIDTH, M> &result) {
    float(*const to)[THREADS][4] = room.results[rank - 1];
#pragma unroll
    for (int m = 0; m < M; m++) {
        constexpr int N = WIDTH / 32;
#pragma unroll
        for (int n = 0; n < N; n++)
            store_counted(to[m * (N + 1) + n][threadIdx.x], &room.received, 0, result.o[m][n]);
        const float rest[4] = {result.base[m][0], result.base[m][1], result.sum[m][0], result.sum[m][1]};
        store_counted(to[m * (N + 1) + N][threadIdx.x], &room.received, 0, rest);
    }
}
template <int WIDTH, int M>
__device__ inline void receive(const Room<WIDTH, M> &room, int rank, Result<WIDTH, M> &result) {
    const float(*const from)[THREADS][4] = room.results[rank - 1];
#pragma unroll
    for (int m = 0; m < M; m++) {
        constexpr int N = WIDTH / 32;
        float rest[4];
#pragma unroll
        for (int n = 0; n < N; n++) load_floats<4>(from[m * (N + 1) + n][threadIdx.x], result.o[m][n]);
        load_floats<4>(from[m * (N + 1) + N][threadIdx.x], rest);
        result.base[m][0] = rest[0], result.base[m][1] = rest[1];
        result.sum[m][0] = rest[2], result.sum[m][1] = rest[3];
    }
}

/* The first block merges the results of a round's tiles, of which there are `count`. */
template <int WIDTH, int M>
__device__ inline void exchange(Room<WIDTH, M> &room, int rank, int round, int count, Result<WIDTH, M> &own,
                                Result<WIDTH, M> &all) {
    if (round > 0) cluster_wait(); // the first block has read what the others sent before
    if (rank > 0 && rank < count) send(room, rank, own);
    if (rank > 0) return;
    if (threadIdx.x == 0) arrive_expecting(&room.received, (count - 1) * int(sizeof room.results[0]));
    wait(&room.received, uint32_t(round % 2));
    for (int other = 1; other < count; other++) {
        receive(room, other, own);
        all.merge(own);
    }
}

/* Writes y and lse of this thread's rows and columns. A row that saw no key becomes 0. */
template <int WIDTH, int M>
__device__ inline void finish(const Problem &p, const BlockRows &rows, const Result<WIDTH, M> &result) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(result.sum[m][half]);
            const float inverse = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
            const int row = 16 * m + 8 * half + g;
            const HeadTile at = rows.at(row);
            if (row >= rows.count() || at.tile >= p.queries) continue;
            bf16 *const to = head_rows<bf16>(p, p.y, at.b, at.head) + at.tile * p.y.row;
#pragma unroll
            for (int n = 0; n < WIDTH / 32; n++) {
                const int column = warp * (WIDTH / WARPS) + 8 * n + 2 * t;
                const float left = result.o[m][n][2 * half] * inverse;
                const float right = result.o[m][n][2 * half + 1] * inverse;
                if (column >= p.width) break;
                if (p.y.vector)
                    *reinterpret_cast<uint32_t *>(to + column) = pack(left, right);
                else
                    to[column] = from_float<bf16>(left), to[column + 1] = from_float<bf16>(right);
            }
            if (p.lse && warp == 0 && t == 0)
                p.lse[(int64_t(at.b) * p.heads + at.head) * p.queries + at.tile] =
                    sum == 0.0f ? -INFINITY : (result.base[m][half] + log2f(sum)) * LN_2;
        }
}

/* Floor: 2 * keys * kv_heads * D * sizeof(bf16) bytes. */
/* Anatomy. Parallel: over up to 32 queries of a key head; a cluster's blocks over tiles of keys; warps over
 * keys, then columns. Launch: queries x kv_heads x batch, or fewer, times 1 to 8 blocks of a cluster, of 128.
 * Holds: 94 to 184 registers, 54 to 174 KiB shared. Occupancy: 16 or 8 warps, by shared memory. Reads: 16
 * bytes per copy, coalesced within a head's row, 2 tiles in flight. Syncs: 3 barriers of the block per tile;
 * stores between blocks that count at the receiver. Fusion: the projections around it. */
template <int WIDTH, int M>
__global__ void __launch_bounds__(THREADS, WIDTH <= 64 && M == 1 ? 4 : 2)
    decode_tensor_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh, int heads,
                         int queries, int blocks) {
    extern __shared__ __align__(16) uint8_t shared_memory[];
    typedef Room<WIDTH, M> Shared;
    Shared &room = *reinterpret_cast<Shared *>(shared_memory);
    const int rank = int(blockIdx.x) & (blocks - 1), tile_of_queries = int(blockIdx.x) / blocks;
    const BlockRows rows = {
        {tile_of_queries * queries, int(blockIdx.y) * heads, int(blockIdx.z)}, heads, queries};
    const HeadTile &mine = rows.first;
    if constexpr (HOPPER)
        if (blocks > 1) {
            if (threadIdx.x == 0) {
                barrier_init(&room.received, 1);
                fence_barrier_init();
            }
            cluster_arrive_relaxed();
        }
    wait_for_previous();
    const Visible range(p, fresh, mine, mine.tile + queries - 1);
    const int tiles = (max(0, range.end - range.begin) + KEYS - 1) / KEYS; // of keys
    const auto start = [&](int tile, int stage) {
        const int first = range.begin + tile * KEYS;
        if (tile < tiles) {
            start_tile<WIDTH>(room.keys[stage], p, p.k, fresh.k, mine, first, range.past, range.end);
            start_tile<WIDTH>(room.values[stage], p, p.v, fresh.v, mine, first, range.past, range.end);
        }
        copy_async_commit();
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) start(rank + s * blocks, s);
    let_next_start();
    load_queries<WIDTH, M>(p, rows, room.queries);
    if constexpr (HOPPER)
        if (blocks > 1) cluster_join(); // all blocks of the cluster have started
    if (rank == 0 && mine.head % p.group == 0) append<bf16>(p, fresh, mine, queries, range.past);

    const int lane = int(threadIdx.x) % 32, g = lane / 4;
    int seen[M][2]; // by each of this lane's rows
    Result<WIDTH, M> all;
    clear(all.o);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            seen[m][half] = min(range.end, range.by(p, rows.at(g + 16 * m + 8 * half).tile));
            all.base[m][half] = -INFINITY, all.sum[m][half] = 0.0f;
        }
    int stage = 0;
#pragma unroll 1
    for (int round = 0; round * blocks < tiles; round++) {
        const int tile = round * blocks + rank, first = range.begin + tile * KEYS;
        Result<WIDTH, M> own;
        copy_async_wait_group<STAGES - 2>();
        __syncthreads(); // the tile is here, and no warp reads the last one any more
        start(tile + (STAGES - 1) * blocks, stage == 0 ? STAGES - 1 : stage - 1);
        if (tile < tiles) attend<WIDTH, M>(room, stage, first, seen, p.scale * LOG2_E, own);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (rank == 0) all.merge(own);
        if constexpr (HOPPER)
            if (blocks > 1) exchange(room, rank, round, min(blocks, tiles - round * blocks), own, all);
    }
    if (rank == 0) finish(p, rows, all);
}

template <int WIDTH, int M>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, int heads, int queries, int blocks) {
    static_assert(shared_bytes<WIDTH, M>(1) <= tensor_shared_bytes(WIDTH), "as fits_tensor_cores assumes");
    const dim3 grid(unsigned(divide_up(p.queries, queries) * blocks), unsigned(p.heads / heads),
                    unsigned(p.batch));
    const auto kernel = decode_tensor_kernel<WIDTH, M>;
    const size_t shared = shared_bytes<WIDTH, M>(blocks);
    switch (blocks) {
    case 1: return LAUNCH_EARLY(ctx, kernel, grid, THREADS, shared, p, fresh, heads, queries, 1);
    case 2: return LAUNCH_CLUSTERS(ctx, 2, kernel, grid, THREADS, shared, p, fresh, heads, queries, 2);
    case 4: return LAUNCH_CLUSTERS(ctx, 4, kernel, grid, THREADS, shared, p, fresh, heads, queries, 4);
    }
    return LAUNCH_CLUSTERS(ctx, 8, kernel, grid, THREADS, shared, p, fresh, heads, queries, 8);
}

} // namespace

bool fits_decode_tensor(const Ctx *ctx, const Problem &p) {
    constexpr int MOST = 65535; // of a grid's y and z
    return fits_tensor_cores(ctx, p) && p.q.vector && p.k.vector && p.v.vector && p.batch <= MOST &&
           p.heads <= MOST;
}

/* Queries of different documents see keys from different ones on, so these are not taken together. Blocks
 * share the keys of a query as long as there are multiprocessors for them. */
Status decode_tensor(Ctx *ctx, const Problem &p, const Fresh &fresh, int64_t longest) {
    const CudaDevice *device = cuda_device(ctx);
    const int heads = heads_together(p, ROWS);
    int blocks = 1;
    int queries = p.queries == 1 || p.starts ? 1 : ROWS / heads;
    const int64_t across = p.heads / heads * p.batch, tiles = divide_up(longest, KEYS);
    const bool many =
        queries > 1 && divide_up(p.queries, 2 * queries) * across >= 2 * device->multiprocessors;
    if (many) queries *= 2;
    while (device->hopper && blocks < CLUSTER && blocks < tiles &&
           2 * blocks * divide_up(p.queries, queries) * across <= device->multiprocessors)
        blocks *= 2;
    if (many)
        return p.width <= 64 ? launch<64, 2>(ctx, p, fresh, heads, queries, 1)
                             : launch<128, 2>(ctx, p, fresh, heads, queries, 1);
    return p.width <= 64 ? launch<64, 1>(ctx, p, fresh, heads, queries, blocks)
                         : launch<128, 1>(ctx, p, fresh, heads, queries, blocks);
}

} // namespace attention
