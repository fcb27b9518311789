/* Attention of a few queries in bf16 on tensor cores. */
#include "kernels/attention/cuda_decode.cuh"
#include "kernels/attention/cuda_tile.cuh"

/* The rows of a product are up to 16 queries: those of the heads that share keys and values, and neighbouring
 * queries of them. Where there are many queries, a block has two products. A warp takes every fourth tile of
 * 16 keys, of which it has a ring in shared memory. Which warp takes a key, and in which order, depends only
 * on the key, so that a row's bits do not depend on the rows beside it. */

namespace attention {
namespace {

constexpr int ROWS = 16, KEYS = 16;

/* A warp's ring of tiles. */
template <int WIDTH>
struct Ring {
    static constexpr int STAGES = 3;
    bf16 keys[STAGES][KEYS * PITCH<WIDTH>], values[STAGES][KEYS * PITCH<WIDTH>];
};
template <int WIDTH, int M>
union Room {
    Ring<WIDTH> rings[WARPS];
    SeenRow<WIDTH> results[WARPS][ROWS * M]; // afterwards
};

/* A warp starts the copies of 16 rows from key `first` on; those from `end` on become zero. */
template <int WIDTH>
__device__ inline void load_rows(bf16 *tile, const Problem &p, const Rows &cached, const Rows &fresh,
                                 const HeadTile &mine, int first, int past, int end) {
    constexpr int VECTORS = WIDTH / 8;
    const int lane = int(threadIdx.x) % 32, head = mine.head / p.group;
    const bf16 *const old_rows = head_rows<bf16>(p, cached, mine.b, head);
    const bf16 *const new_rows = head_rows<bf16>(p, fresh, mine.b, head);
#pragma unroll
    for (int i = 0; i < KEYS * VECTORS / 32; i++) {
        const int vector = i * 32 + lane, row = vector / VECTORS, column = vector % VECTORS * 8;
        const int64_t key = first + row;
        const bf16 *const from =
            key < past ? old_rows + key * cached.row : new_rows + (key - past) * fresh.row;
        const bool inside = key < end && column < p.width;
        copy_async_16(tile + row * PITCH<WIDTH> + column, inside ? from + column : old_rows, inside);
    }
}

/* The left operand of the scores, directly from memory. */
template <int WIDTH, int M>
__device__ inline Left<M, WIDTH, true> load_queries(const Problem &p, const BlockRows &rows) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    Left<M, WIDTH, true> left;
#pragma unroll
    for (int eight = 0; eight < 2 * M; eight++) {
        const int row = g + 8 * eight;
        const HeadTile at = rows.at(row);
        const bool inside = row < rows.count() && at.tile < p.queries;
        const bf16 *const from =
            head_rows<bf16>(p, p.q, at.b, inside ? at.head : 0) + (inside ? at.tile : 0) * p.q.row;
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = 16 * k + 8 * i + 2 * t;
                left.fragments[eight / 2][k][eight % 2 + 2 * i] =
                    inside && column < p.width ? *reinterpret_cast<const uint32_t *>(from + column) : 0;
            }
    }
    return left;
}

/* Floor: 2 * keys * kv_heads * D * sizeof(bf16) bytes. */
/* Anatomy. Parallel: over up to 32 queries of heads that share keys; up to 16 parts of the keys; warps over
 * tiles of 16 keys. Launch: queries x kv_heads x batch by parts, or fewer, blocks of 128. Holds: 127 to 255
 * registers, 54 or 102 KiB shared. Occupancy: 16 or 8 warps, by shared memory. Reads: 16 bytes per copy,
 * coalesced within a head's row, 2 tiles per warp in flight. Syncs: of warps; a barrier of the block, two
 * more and a ticket where keys are split. Fusion: rotary positions of q and k, the projections around it. */
template <int WIDTH, int M>
__global__ void __launch_bounds__(THREADS, WIDTH <= 64 && M == 1 ? 4 : 2)
    decode_tensor_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh,
                         const __grid_constant__ Splits splits, int heads, int queries) {
    extern __shared__ uint4 shared_memory[];
    typedef Room<WIDTH, M> Shared;
    Shared &room = *reinterpret_cast<Shared *>(shared_memory);
    BlockRows rows = {block_tile((p.queries + queries - 1) / queries, p.heads / heads), heads, queries};
    HeadTile &mine = rows.first;
    mine.head *= heads;
    mine.tile *= queries;
    wait_for_previous();
    let_next_start();
    const KeyRange range(p, fresh, splits, mine, mine.tile + queries - 1);
    if (range.part >= range.parts) return;

    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    Ring<WIDTH> &ring = room.rings[warp];
    constexpr int STEP = WARPS * KEYS, AHEAD = Ring<WIDTH>::STAGES - 1;
    const auto start = [&](int first, int stage) {
        load_rows<WIDTH>(ring.keys[stage], p, p.k, fresh.k, mine, first, range.past, range.end);
        load_rows<WIDTH>(ring.values[stage], p, p.v, fresh.v, mine, first, range.past, range.end);
        copy_async_commit();
    };
    const int own = range.begin + warp * KEYS; // the warp's first key
#pragma unroll
    for (int i = 0; i < AHEAD; i++) start(own + i * STEP, i);

    const Left<M, WIDTH, true> q = load_queries<WIDTH, M>(p, rows);
    const float scale = p.scale * LOG2_E;
    int seen[M][2]; // by each of this lane's rows
    float o[M][WIDTH / 8][4];
    Softmax<M> state;
    clear(o);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            seen[m][half] = min(range.end, range.seen_by(p, rows.at(g + 16 * m + 8 * half).tile));
            state.maximum[m][half] = -INFINITY, state.sum[m][half] = 0.0f;
        }
    int stage = 0;
#pragma unroll 1
    for (int first = own; first < range.end; first += STEP) {
        start(first + AHEAD * STEP, stage == 0 ? AHEAD : stage - 1);
        copy_async_wait_group<AHEAD>();
        __syncwarp();
        float s[M][KEYS / 8][4];
        uint32_t probabilities[M][KEYS / 16][4];
        multiply_transposed(s, q, ring.keys[stage], FromZero());
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (first + 8 * n + 2 * t + i % 2 >= seen[m][i / 2]) s[m][n][i] = -INFINITY;
        softmax_step<WIDTH>(state, s, o, scale);
        pack_left<M, KEYS / 8>(probabilities, s);
        multiply_rows<M, KEYS / 16, WIDTH>(o, probabilities, ring.values[stage]);
        __syncwarp(); // until no lane reads the stage that the next copies overwrite
        stage = stage == AHEAD ? 0 : stage + 1;
    }
    if (range.part == 0 && mine.head % p.group == 0) append<bf16>(p, fresh, mine, queries, range.past);

    copy_async_wait();
    __syncthreads(); // the results take the rings' place
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            SeenRow<WIDTH> &result = room.results[warp][g + 16 * m + 8 * half];
            float sum = state.sum[m][half];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++)
                *reinterpret_cast<float2 *>(&result[8 * n + 2 * t]) =
                    make_float2(o[m][n][2 * half], o[m][n][2 * half + 1]);
            if (t == 0) result[WIDTH] = state.maximum[m][half] * scale, result[WIDTH + 1] = sum;
        }
    __syncthreads();
    merge_and_write<bf16>(p, splits, range, rows, room.results);
}

template <int WIDTH, int M>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits, int heads, int queries) {
    constexpr size_t shared = sizeof(Room<WIDTH, M>);
    static_assert(shared <= tensor_shared_bytes(WIDTH), "as fits_tensor_cores assumes");
    const int64_t tiles = divide_up(p.queries, queries) * (p.heads / heads) * p.batch;
    return LAUNCH_EARLY(ctx, (decode_tensor_kernel<WIDTH, M>), dim3(unsigned(tiles), unsigned(splits.most)),
                        THREADS, shared, p, fresh, splits, heads, queries);
}

} // namespace

bool fits_decode_tensor(const Ctx *ctx, const Problem &p) {
    return fits_tensor_cores(ctx, p) && p.q.vector && p.k.vector && p.v.vector;
}

/* Queries of different documents see keys from different ones on, so these are not taken together. */
void tensor_decode_rows(const Ctx *ctx, const Problem &p, int *heads, int *queries) {
    *heads = p.group < ROWS ? p.group : ROWS;
    while (p.group % *heads != 0) (*heads)--;
    *queries = p.queries == 1 || p.starts ? 1 : ROWS / *heads;
    const int64_t blocks = divide_up(p.queries, 2 * *queries) * (p.heads / *heads) * p.batch;
    if (*queries > 1 && blocks >= 2 * cuda_device(ctx)->multiprocessors) *queries *= 2;
}

Status decode_tensor(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits, int heads,
                     int queries) {
    if (heads * queries > ROWS)
        return p.width <= 64 ? launch<64, 2>(ctx, p, fresh, splits, heads, queries)
                             : launch<128, 2>(ctx, p, fresh, splits, heads, queries);
    return p.width <= 64 ? launch<64, 1>(ctx, p, fresh, splits, heads, queries)
                         : launch<128, 1>(ctx, p, fresh, splits, heads, queries);
}

} // namespace attention
