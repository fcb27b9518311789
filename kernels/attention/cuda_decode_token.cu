/* Attention of one token in bf16 on Hopper's tensor cores, in the order of cuda_order.cuh, with what the token
 * has not had before: norms of its heads, rotary positions, and its place in the cache. */
#include "kernels/attention/cuda_decode_token.cuh"

#include "kernels/cuda/hopper.cuh"

/* A block has up to 8 heads that share keys and values. A warp takes a tile of 64 keys, whose rows are in
 * its own shared memory before the previous kernel has ended: it computes scores, softmax and values with no
 * other warp. Keys are the rows of its products and heads their columns,
 *     S^T = K Q^T,   O^T = V^T P^T,
 * so that 8 heads fill an instruction. Then the block merges the results of tiles in their order. Many tiles
 * have a cluster of blocks, whose first merges all; more of them take another round. */

namespace attention {
namespace token {

/* ---- a tile ---- */

/* A warp's operands in shared memory: the addresses from which this lane loads. */
template <class F>
struct Operands {
    static constexpr int WIDTH = F::WIDTH;
    uint32_t queries, keys, values;

    __device__ explicit Operands(const Room<F> &room) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        queries = shared_address(room.rows + lane % 8 * F::PITCH + lane / 8 * N);
        keys = shared_address(room.keys[0][warp] + eight_columns<WIDTH>(lane % 16, lane / 16));
        values = shared_address(room.values[0][warp] +
                                eight_columns<WIDTH>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
    }
    /* Those of another stage. */
    __device__ Operands of_stage(int stage) const {
        Operands there = *this;
        there.keys += stage * F::WARPS * rows(KEYS), there.values += stage * F::WARPS * rows(KEYS);
        return there;
    }
    /* Bytes of rows of a tile. */
    __device__ static int rows(int count) { return count * WIDTH * int(sizeof(bf16)); }

    /* s[w] = the scores of keys 16 w + g and + 8, and of heads 2t and 2t + 1. */
    __device__ void multiply_scores(float (&s)[KEYS / 16][4]) const {
        uint32_t left[KEYS / 16][WIDTH / 16][4], right[WIDTH / 32][4];
#pragma unroll
        for (int k = 0; k < WIDTH / 32; k++) load_matrices(right[k], queries + 64 * k);
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
            for (int w = 0; w < KEYS / 16; w++) load_matrices(left[w][k], (keys + rows(16 * w)) ^ 32 * k);
#pragma unroll
        for (int w = 0; w < KEYS / 16; w++) s[w][0] = s[w][1] = s[w][2] = s[w][3] = 0.0f;
#pragma unroll
        for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
            for (int w = 0; w < KEYS / 16; w++)
                multiply(s[w], left[w][k], right[k / 2][k % 2 * 2], right[k / 2][k % 2 * 2 + 1], s[w]);
    }

    __device__ void load_values(uint32_t (&left)[KEYS / 16][WIDTH / 16][4]) const {
#pragma unroll
        for (int w = 0; w < KEYS / 16; w++)
#pragma unroll
            for (int n = 0; n < WIDTH / 16; n++)
                load_matrices_transposed(left[w][n], (values + rows(16 * w)) ^ 32 * n);
    }
};

/* Where this lane puts the result of its warp's tile: here, by address, or in the cluster's first block. */
template <class F>
struct Destination {
    Room<F> &room;
    const int rank;
    uint32_t o, ends; // Partial.o[0] and ends; 0: none

    __device__ Destination(Room<F> &room, int rank) : room(room), rank(rank) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        const Partial<F::WIDTH> &own = room.partials[0][warp];
        o = shared_address(own.o[0][lane]);
        ends = lane / 4 % 2 == 0 ? shared_address(own.ends[lane / 8][lane % 4]) : 0;
        settle(o, ends);
    }
    __device__ void put(const float (&sums)[F::WIDTH / 16][4], const float (&own_ends)[4]) const {
        if (rank == 0) {
#pragma unroll
            for (int n = 0; n < F::WIDTH / 16; n++)
                store_shared(o + n * int(sizeof(float[WARP][4])), sums[n]);
            if (ends) store_shared(ends, own_ends);
            return;
        }
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        Partial<F::WIDTH> &there = room.partials[rank][warp];
#pragma unroll
        for (int n = 0; n < F::WIDTH / 16; n++) store_counted(there.o[n][lane], &room.received, 0, sums[n]);
        if (ends) store_counted(there.ends[lane / 8][lane % 4], &room.received, 0, own_ends);
    }
};

/* Computes the result of a tile, of which the keys before `seen` count. */
template <class F>
__device__ inline void attend(const Operands<F> &operands, int seen, float scale, const Destination<F> &to) {
    const int g = int(threadIdx.x) % WARP / 4;
    float s[KEYS / 16][4], ends[4], o[F::WIDTH / 16][4];
    uint32_t left[KEYS / 16][F::WIDTH / 16][4], right[KEYS / 16][2];
    operands.multiply_scores(s);
    operands.load_values(left);
#pragma unroll
    for (int head = 0; head < 2; head++) {
        float maximum = -INFINITY;
#pragma unroll
        for (int w = 0; w < KEYS / 16; w++)
#pragma unroll
            for (int i = head; i < 4; i += 2) {
                if (16 * w + g + i / 2 * 8 >= seen) s[w][i] = -INFINITY;
                maximum = fmaxf(maximum, s[w][i]);
            }
#pragma unroll
        for (int distance = WARP / 2; distance >= 4; distance /= 2)
            maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, distance));
        ends[2 + head] = base_of(maximum, scale);
    }
#pragma unroll
    for (int head = 0; head < 2; head++) {
#pragma unroll
        for (int w = 0; w < KEYS / 16; w++) {
#pragma unroll
            for (int i = head; i < 4; i += 2) s[w][i] = probability(s[w][i], scale, ends[2 + head]);
            const float sum = s[w][head] + s[w][head + 2]; // of keys g and g + 8
            const float quarter = sum + __shfl_xor_sync(~0u, sum, 4);
            ends[head] = w == 0 ? quarter : ends[head] + quarter;
        }
    }
#pragma unroll
    for (int w = 0; w < KEYS / 16; w++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            right[w][half] = transposed(pack(s[w][2 * half], s[w][2 * half + 1]));
#pragma unroll
    for (int n = 0; n < F::WIDTH / 16; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
#pragma unroll
    for (int w = 0; w < KEYS / 16; w++)
#pragma unroll
        for (int n = 0; n < F::WIDTH / 16; n++) multiply(o[n], left[w][n], right[w][0], right[w][1], o[n]);
    to.put(o, ends);
}

/* ---- all tiles ---- */

/* What a thread of the first block merges: of heads 2t and 2t + 1 the columns 8 (warp + i WARPS) + g, their
 * bases, and the sums of its quarter. */
template <class F>
struct Merged {
    static constexpr int PARTS = F::WIDTH / 8 / F::WARPS, STEP = sizeof(Partial<F::WIDTH>);
    float o[PARTS][2] = {}, sum[2] = {}, base[2] = {-INFINITY, -INFINITY};
    uint32_t from_o, from_ends; // of the first result
    bf16 *y;                    // of head 2t
    int heads, columns;         // that there are, from this thread's first on

    __device__ Merged(const Problem &p, int first_head, int heads_of_block, const Room<F> &room) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        const Partial<F::WIDTH> &first = room.partials[0][0];
        from_o = shared_address(first.o[warp / 2][lane] + warp % 2 * 2);
        from_ends = shared_address(first.ends[lane / 8][lane % 4]);
        heads = heads_of_block - lane % 4 * 2;
        columns = p.width - 8 * warp - lane / 4;
        y = head_rows<bf16>(p, p.y, 0, first_head + lane % 4 * 2) + 8 * warp + lane / 4;
        settle(from_o, from_ends, y, heads, columns);
    }

    /* Merges the first `count` results of a block, a few at a time. Those beyond, whose base is -inf, change
     * nothing. */
    __device__ void add(int block, int count) {
        constexpr int AT_ONCE = F::WARPS < 4 ? F::WARPS : 4;
        constexpr int AGAIN = F::WARPS / 2 * WARP * 4 * int(sizeof(float)); // from part to part
        for (int first = 0; first < min(count, F::WARPS); first += AT_ONCE) {
            const uint32_t later = uint32_t((block * F::WARPS + first) * STEP);
            float ends[AT_ONCE][4], next[AT_ONCE][PARTS][2];
#pragma unroll
            for (int w = 0; w < AT_ONCE; w++) {
                ends[w][0] = ends[w][1] = 0.0f, ends[w][2] = ends[w][3] = -INFINITY;
                if (first + w < count) load_shared(from_ends + later + w * STEP, ends[w]);
#pragma unroll
                for (int i = 0; i < PARTS; i++) {
                    next[w][i][0] = next[w][i][1] = 0.0f;
                    if (first + w < count) load_shared(from_o + later + w * STEP + i * AGAIN, next[w][i]);
                }
            }
#pragma unroll
            for (int w = 0; w < AT_ONCE; w++)
#pragma unroll
                for (int head = 0; head < 2; head++) {
                    const Merge both(base[head], ends[w][2 + head]);
                    sum[head] = both(sum[head], ends[w][head]);
#pragma unroll
                    for (int i = 0; i < PARTS; i++) o[i][head] = both(o[i][head], next[w][i][head]);
                }
        }
    }

    /* Writes y. */
    __device__ void finish(int width) {
#pragma unroll
        for (int head = 0; head < 2; head++) {
            float all = sum[head]; // of four quarters
            all += __shfl_xor_sync(~0u, all, 8);
            all += __shfl_xor_sync(~0u, all, 16);
            const float inverse = __fdividef(1.0f, all);
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                o[i][head] *= inverse;
                asm volatile("" : "+f"(o[i][head])); // before a branch, so that both heads' run together
            }
        }
#pragma unroll
        for (int head = 0; head < 2; head++)
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const int later = 8 * F::WARPS * i;
                if (head < heads && later < columns) y[head * width + later] = from_float<bf16>(o[i][head]);
            }
    }
};

/* Floor: 2 * keys * kv_heads * D * sizeof(bf16) bytes. */
/* Anatomy. Parallel: over key heads, or 8 of the heads that share one; a warp has a tile of keys. Launch:
 * kv_heads, or more, times 1 to 8 blocks of a cluster, of 64 to 256. Holds: 84 to 163 registers, 148 to 202
 * KiB shared. Occupancy: shared memory: one block per multiprocessor. Reads: 16 bytes per copy, coalesced
 * within a head's row, one or two tiles per warp in flight before the wait. Syncs: 3 barriers of the block;
 * stores between blocks that count at the receiver. Fusion: the products around it, by a grid barrier. */
template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    token_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh,
                 const __grid_constant__ TokenTurn turn, int heads) {
    if constexpr (HOPPER) {
        extern __shared__ __align__(128) uint8_t shared_memory[];
        Room<F> &room = *reinterpret_cast<Room<F> *>(shared_memory);
        const int rank = F::FEW ? 0 : int(blockIdx.x), blocks = F::FEW ? 1 : int(gridDim.x);
        const int first_head = int(blockIdx.y) * heads, kv_head = first_head / p.group;
        const int warp = int(threadIdx.x) / WARP, round_tiles = blocks * F::WARPS;
        if (!F::FEW) {
            if (threadIdx.x == 0) {
                barrier_init(&room.received, 1);
                fence_barrier_init();
            }
            cluster_arrive_relaxed();
        }
        let_next_start();
        float2 *const angle = int(threadIdx.x) < p.width / 2 ? room.angles + threadIdx.x : nullptr;
        const float frequency = angle && turn.frequencies ? turn.frequencies[threadIdx.x] : 0.0f;
        const int past = fresh.past ? *fresh.past : p.keys - 1, tiles = past / KEYS + 1;
        const int first_tile = rank * F::WARPS + warp; // of this warp
        const auto start = [&](int round) {
            const int stage = round % F::STAGES, tile = first_tile + round * round_tiles;
            if (tile < tiles) {
                start_tile<F::WIDTH>(room.keys[stage][warp], p, p.k, kv_head, tile * KEYS, past);
                start_tile<F::WIDTH>(room.values[stage][warp], p, p.v, kv_head, tile * KEYS, past);
            }
            copy_async_commit();
        };
        for (int round = 0; round < F::STAGES; round++) start(round);
        if (angle) sincosf(float(past) * frequency, &angle->y, &angle->x);
        __syncthreads();
        const TokenRows<F> rows(p, fresh, turn, first_head, heads, past,
                                rank == 0 && first_head % p.group == 0, room);
        Operands<F> operands(room);
        const Destination<F> to(room, rank);
        Merged<F> merged(p, first_head, heads, room);
        int seen = past + 1 - first_tile * KEYS; // keys from the warp's tile on; 0 or less: none
        float scale = p.scale * LOG2_E;
        settle(operands.queries, operands.keys, operands.values, seen, scale);
        wait_for_previous();
        rows.load(turn);
        if constexpr (F::FEW) {
            copy_async_wait();
            __syncthreads();
            if (seen > 0) attend(operands, seen, scale, to);
            __syncthreads();
            merged.add(0, tiles);
            merged.finish(p.width);
        } else {
            cluster_join(); // all blocks of the cluster have started
            __syncthreads();
#pragma unroll 1
            for (int round = 0, sent = tiles; sent > 0; round++, sent -= round_tiles) {
                const int stage = round % F::STAGES;
                copy_async_wait_group<F::STAGES - 1>();
                if (seen > 0 && seen <= KEYS) put_own_row(room, stage, seen - 1);
                __syncwarp();
                if (round > 0) cluster_wait(); // until the first block has read earlier results
                if (seen > 0) attend(operands.of_stage(stage), seen, scale, to);
                __syncwarp(); // until no lane reads the tile that the next copies overwrite
                seen -= round_tiles * KEYS;
                start(round + F::STAGES);
                if (rank > 0) continue;
                if (threadIdx.x == 0)
                    arrive_expecting(&room.received, max(0, min(round_tiles, sent) - F::WARPS) *
                                                         int(sizeof(Partial<F::WIDTH>)));
                __syncthreads();
                merged.add(0, sent);
                wait(&room.received, uint32_t(round % 2));
                for (int other = 1; other < blocks; other++) merged.add(other, sent - other * F::WARPS);
            }
            if (rank == 0) merged.finish(p.width);
        }
    }
}

template <int WIDTH>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, const TokenTurn &turn, int heads,
              int64_t longest) {
    typedef Form<WIDTH, true> Few;
    typedef Form<WIDTH, false> Many;
    const unsigned across = unsigned(p.heads / heads);
    if (longest <= Few::AHEAD)
        return LAUNCH_EARLY(ctx, token_kernel<Few>, dim3(1, across), Few::THREADS, shared_bytes<Few>(1), p,
                            fresh, turn, heads);
    if (longest <= 4 * Many::AHEAD)
        return LAUNCH_CLUSTERS(ctx, 4, token_kernel<Many>, dim3(4, across), Many::THREADS,
                               shared_bytes<Many>(4), p, fresh, turn, heads);
    return LAUNCH_CLUSTERS(ctx, CLUSTER, token_kernel<Many>, dim3(CLUSTER, across), Many::THREADS,
                           shared_bytes<Many>(CLUSTER), p, fresh, turn, heads);
}

} // namespace token

bool token_suits(const Ctx *ctx, int64_t width, int64_t kv_heads, int64_t longest) {
    const int64_t few = width <= 64 ? token::Form<64, true>::AHEAD : token::Form<128, true>::AHEAD;
    return longest <= few ||
           (width == 64 && kv_heads * token::CLUSTER >= cuda_device(ctx)->multiprocessors / 4);
}

bool fits_decode_token(const Ctx *ctx, const Problem &p, const Fresh &fresh) {
    return cuda_device(ctx)->hopper && fits_decode_tensor(ctx, p) && p.queries == 1 && p.batch == 1 &&
           fresh.count == 1 && p.width % 16 == 0 && !fresh.pasts && !p.key_lengths && !p.starts && !p.lse &&
           p.y.vector;
}

Status decode_token(Ctx *ctx, const Problem &p, const Fresh &fresh, const TokenTurn &turn, int64_t longest) {
    const int heads = heads_together(p, token::HEADS);
    return p.width <= 64 ? token::launch<64>(ctx, p, fresh, turn, heads, longest)
                         : token::launch<128>(ctx, p, fresh, turn, heads, longest);
}

} // namespace attention
