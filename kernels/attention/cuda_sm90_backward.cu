/* Flash attention backward in bf16 for Hopper, with five products per pair of tiles. */
#include "kernels/attention/cuda_sm90_backward.cuh"

/* Dao 2023 (FlashAttention-2), algorithm 2; Shah et al. 2024 (FlashAttention-3), section 3. A block owns a
 * tile of keys at a time and passes over the tiles of queries that see it. Scores are computed transposed
 * (keys x queries), so that p^T and ds^T are left operands of dv = p^T dy and dk = ds^T q directly in
 * registers. ds goes through shared memory for dq = ds k. dq sums over the blocks that own keys; they add in
 * a fixed order, so the results are the same bits in every run (cuda_sm90_backward.cuh). Roles: one warp, the
 * producer, copies tiles to shared memory; another warp, the adder, adds the blocks' shares of dq in global
 * memory; two warpgroups, the consumers, compute 64 keys each. */

namespace attention {
namespace {

constexpr int CONSUMER_THREADS = KEYS / 64 * WARPGROUP, CONSUMER_WARPS = CONSUMER_THREADS / 32;
constexpr int BLOCK_THREADS = CONSUMER_THREADS + WARPGROUP, STAGES = 2;

template <int WIDTH_>
struct Tile {
    static constexpr int WIDTH = WIDTH_, QUERIES = SHARE / WIDTH;

    struct Shared {
        bf16 keys[KEYS * WIDTH], values[KEYS * WIDTH];
        bf16 q[STAGES][QUERIES * WIDTH], dy[STAGES][QUERIES * WIDTH];
        bf16 ds[STAGES][QUERIES * KEYS]; // rows are keys, in blocks of 64 queries
        float dq[SHARE];                 // in the layout of the consumers' accumulators
        float2 statistics[STAGES][QUERIES];
        Place places[STAGES]; // for each stage of q and dy, its tile of queries
        int ends[KEYS];       // with several documents: the first query after each key's document
        Turn turn;            // for adding to dq: the turn of the step whose dq_free is awaited
        uint64_t keys_here, keys_free, q_here[STAGES], q_free[STAGES], dq_free, dq_here;
        int unit; // the unit of `keys` and `values`
    };
    static constexpr size_t SHARED = sizeof(Shared) + 1024; // the start is rounded up to 1024 bytes for the
                                                            // swizzle
};

template <class F>
constexpr int BLOCKS = F::WIDTH / BLOCK_COLUMNS; // 64-column blocks of a head

/* ---- the producer ---- */

template <class F>
__device__ inline void produce(const Problem &p, const Maps &maps, const Units &units, int *ticket,
                               typename F::Shared &shared) {
    const int lane = int(threadIdx.x) % 32;
    Ring<STAGES> ring;
    for (uint32_t parity = 1;; parity ^= 1) {
        int number = 0;
        if (lane == 0) number = atomicAdd(ticket, 1);
        number = __shfl_sync(~0u, number, 0);
        wait(&shared.keys_free, parity);
        if (lane == 0) shared.unit = number;
        if (number >= units.count) {
            if (lane == 0) arrive(&shared.keys_here);
            return;
        }
        const Unit<F> unit(p, units, number);
        if (p.starts) find_ends(p, unit.b, unit.first, shared.ends);
        if (lane == 0) {
            if (unit.steps > 0) {
                arrive_expecting(&shared.keys_here, sizeof(shared.keys) + sizeof(shared.values));
                load_tile_async(shared.keys, maps.k, unit.first, unit.kv_head * BLOCKS<F>, unit.b,
                                &shared.keys_here);
                load_tile_async(shared.values, maps.v, unit.first, unit.kv_head * BLOCKS<F>, unit.b,
                                &shared.keys_here);
            } else {
                arrive(&shared.keys_here);
            }
        }
        Step<F> at(p, unit);
        for (int step = 0; step < unit.steps; step++, at.advance(unit), ring.advance()) {
            const int s = ring.stage, row = at.tile * F::QUERIES;
            uint64_t *const here = &shared.q_here[s];
            wait(&shared.q_free[s], ring.parity ^ 1);
            if (lane == 0) {
                shared.places[s] = at.place(p, unit);
                arrive_expecting(here, sizeof(shared.q[s]) + sizeof(shared.dy[s]));
                load_tile_async(shared.q[s], maps.q, row, at.head * BLOCKS<F>, unit.b, here);
                load_tile_async(shared.dy[s], maps.dy, row, at.head * BLOCKS<F>, unit.b, here);
            }
            // rows beyond the last are zeros, like q and dy: then p = 1 and dp = ds = 0, so they contribute
            // nothing
            const float2 *const from = p.statistics + (int64_t(unit.b) * p.heads + at.head) * p.queries;
#pragma unroll
            for (int i = lane; i < F::QUERIES; i += 32)
                copy_async_8(&shared.statistics[s][i], row + i < p.queries ? from + row + i : from,
                             row + i < p.queries);
            arrive_when_copied(here);
        }
    }
}

/* ---- the consumers ---- */

template <class F>
struct Consumer {
    static constexpr int COLUMNS = F::QUERIES / 8, WIDE = F::WIDTH / 8, NARROW = 8;
    static constexpr int KEY_BYTES = KEYS * ROW_BYTES,
                         QUERY_BYTES = F::QUERIES * ROW_BYTES; // bytes of a warpgroup's part of dq in one
                                                               // column block: its 64 queries or, if the tile
                                                               // has only 64 queries, its 64 columns
    static constexpr bool BY_QUERIES = F::QUERIES == 2 * 64;
    const Problem &p;
    typename F::Shared &shared;
    Ring<STAGES> ring;
    uint32_t dq_parity = 0;
    int group, thread, lane, row; // row: this thread's first row within the warpgroup

    __device__ inline Consumer(const Problem &p, typename F::Shared &shared)
        : p(p), shared(shared), group(int(threadIdx.x) / WARPGROUP), thread(int(threadIdx.x) % WARPGROUP),
          lane(int(threadIdx.x) % 32), row(thread / 32 * 16 + lane / 4) {}

    __device__ inline void release(uint64_t &barrier) const {
        __syncwarp();
        if (lane == 0) arrive(&barrier);
    }

    /* c = a b^T: the warpgroup's rows of a tile of keys (or values) times a tile of queries (or dy). */
    __device__ inline void issue_transposed(float (&c)[COLUMNS][4], const bf16 *keys, const bf16 *q) const {
        const uint64_t a = rows_operand(keys + group * 64 * BLOCK_COLUMNS), b = rows_operand(q);
        products_begin();
#pragma unroll
        for (int k = 0; k < F::WIDTH; k += 16)
            multiply_async<false, false>(c, advance(a, k / 64 * KEY_BYTES + k % 64 * 2),
                                         advance(b, k / 64 * QUERY_BYTES + k % 64 * 2), k > 0);
        products_commit();
    }
    /* c += a b: p^T or ds^T times the tile of dy or of queries. */
    __device__ inline void issue_rows(float (&c)[WIDE][4], const uint32_t (&a)[COLUMNS / 2][4],
                                      const bf16 *q) const {
        const uint64_t b = columns_operand(q, QUERY_BYTES);
        products_begin();
#pragma unroll
        for (int k = 0; k < COLUMNS / 2; k++)
            multiply_async<true>(c, a[k], advance(b, 16 * k * ROW_BYTES), true);
        products_commit();
    }
    /* The warpgroup's part of ds k. */
    __device__ inline void issue_share(float (&c)[NARROW][4], const bf16 *ds) const {
        const uint64_t a = columns_operand(ds + (BY_QUERIES ? group * KEYS * 64 : 0), KEY_BYTES);
        const uint64_t b = columns_operand(shared.keys + (BY_QUERIES ? 0 : group * KEYS * 64), KEY_BYTES);
        products_begin();
#pragma unroll
        for (int k = 0; k < KEYS; k += 16)
            multiply_async<true, true>(c, advance(a, k * ROW_BYTES), advance(b, k * ROW_BYTES), k > 0);
        products_commit();
    }

    /* Replaces transposed scores by probabilities. Columns below visible[half] do not see the row. */
    __device__ inline void probabilities(float (&s)[COLUMNS][4], const float2 *statistics,
                                         const int (&visible)[2], bool masked) const {
        const float scale = p.scale * LOG2_E;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            const float4 two = *reinterpret_cast<const float4 *>(statistics + 8 * n + lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] = power_of_two(s[n][i] * scale - (i % 2 ? two.z : two.x));
        }
        if (!masked) return;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (8 * n + i % 2 < visible[i / 2]) s[n][i] = 0.0f;
    }

    /* Replaces s by ds = p (dp - delta). */
    __device__ inline void score_gradients(float (&s)[COLUMNS][4], const float (&dp)[COLUMNS][4],
                                           const float2 *statistics) const {
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            const float4 two = *reinterpret_cast<const float4 *>(statistics + 8 * n + lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] *= dp[n][i] - (i % 2 ? two.w : two.y);
        }
    }

    /* Stores ds^T to shared memory, 16 keys x 16 queries at a time. */
    __device__ inline void store_gradients(const uint32_t (&left)[COLUMNS / 2][4], bf16 *ds) const {
        const int key = 64 * group + thread / 32 * 16 + lane % 16;
        uint8_t *const to = reinterpret_cast<uint8_t *>(ds);
#pragma unroll
        for (int k = 0; k < COLUMNS / 2; k++)
            store_matrices(left[k], to + k / 4 * KEY_BYTES + swizzled(key, k % 4 * 16 + lane / 16 * 8));
    }

    /* Writes the warpgroup's part of dq to shared memory; the last unit adds it to the sum there and writes
     * dq. */
    __device__ inline void hand_over(float (&share)[NARROW][4], const Unit<F> &unit, const Place &at) {
        float4 *const staged = reinterpret_cast<float4 *>(shared.dq) + group * (SHARE / 8) + thread;
        wait(&shared.dq_free, dq_parity);
        dq_parity ^= 1;
        const Turn turn = shared.turn;
        if (!turn.last) {
#pragma unroll
            for (int n = 0; n < NARROW; n++)
                staged[n * WARPGROUP] = make_float4(share[n][0], share[n][1], share[n][2], share[n][3]);
            fence_async();
            release(shared.dq_here);
            return;
        }
        if (turn.before > 0) {
#pragma unroll
            for (int n = 0; n < NARROW; n++) {
                const float4 sum = staged[n * WARPGROUP];
                share[n][0] += sum.x, share[n][1] += sum.y, share[n][2] += sum.z, share[n][3] += sum.w;
            }
        }
        const int query = at.tile * F::QUERIES + (BY_QUERIES ? group * 64 : 0) + row;
        const bool quarters = p.angles && !BY_QUERIES; // columns are gathered in quarters, so that rotary
                                                       // pairs, half a head apart, stay together
        const int column = BY_QUERIES ? 0 : group * (quarters ? 32 : 64), apart = quarters ? 64 : 32;
        if (p.angles) turn_share_back(share, unit.b, column, query);
        release(shared.dq_here);
        bf16 *const to = head_rows<bf16>(p, p.dq, unit.b, at.head) + column;
        store_rows(half_of<0>(share), to, p.dq.row, query, p.queries, p.scale);
        store_rows(half_of<1>(share), to + apart, p.dq.row, query, p.queries, p.scale);
    }

    using Half = float[NARROW / 2][4]; // half of a share's columns

    template <int WHICH>
    __device__ static inline Half &half_of(float (&share)[NARROW][4]) {
        return reinterpret_cast<Half &>(share[WHICH * NARROW / 2]);
    }

    /* A warpgroup that has 64 of 128 columns sends the other warpgroup the 32 columns whose rotary partners
     * are kept there, and receives the partners of its own. */
    __device__ inline void turn_share_back(float (&share)[NARROW][4], int b, int column, int query) const {
        constexpr int HALF = NARROW / 2;
        float4 angles[HALF][2];
        load_angles(p, b, column, query, angles);
        if constexpr (!BY_QUERIES) {
            float4 *const staged = reinterpret_cast<float4 *>(shared.dq) + thread;
#pragma unroll
            for (int n = 0; n < HALF; n++) {
                const float(&c)[4] = share[n], (&d)[4] = share[n + HALF];
                staged[group * (SHARE / 8) + n * WARPGROUP] =
                    group ? make_float4(c[0], c[1], c[2], c[3]) : make_float4(d[0], d[1], d[2], d[3]);
            }
            named_wait(2, CONSUMER_THREADS);
#pragma unroll
            for (int n = 0; n < HALF; n++) {
                const float4 other = staged[(1 - group) * (SHARE / 8) + n * WARPGROUP];
                float(&c)[4] = share[n], (&d)[4] = share[n + HALF];
                const float got[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
                for (int i = 0; i < 4; i++) (group ? c[i] : d[i]) = got[i];
            }
        }
#pragma unroll
        for (int n = 0; n < HALF; n++) turn_back(angles[n], share[n], share[n + HALF]);
    }

    __device__ inline void step(float (&dk)[WIDE][4], float (&dv)[WIDE][4], const Unit<F> &unit) {
        const int stage = ring.stage;
        const Place &at = shared.places[stage];
        const float2 *const statistics = shared.statistics[stage];
        float s[COLUMNS][4], dp[COLUMNS][4], share[NARROW][4];
        uint32_t left[COLUMNS / 2][4];

        wait(&shared.q_here[stage], ring.parity);
        issue_transposed(s, shared.keys, shared.q[stage]);
        issue_transposed(dp, shared.values, shared.dy[stage]);
        const int query = at.tile * F::QUERIES,
                  column = query + lane % 4 * 2; // the tile's first column; this thread's first column
        const int key = unit.first + 64 * group;
        int visible[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int own = key + row + 8 * half;
            visible[half] = own < unit.length ? first_query(p, own) - column : F::QUERIES;
        }
        const bool masked = unit.first + KEYS > unit.length || first_query(p, key + 63) > query;
        products_wait<1>();
        hold(s);
        probabilities(s, statistics, visible, masked);
        if (at.document > key) {
            const int *const ends = shared.ends + 64 * group + row;
            part_documents(s, {ends[0] - column, ends[8] - column});
        }
        pack_rows(left, s);
        issue_rows(dv, left, shared.dy[stage]);
        products_wait<1>();
        hold(dp);
        score_gradients(s, dp, statistics);
        uint32_t gradients[COLUMNS / 2][4];
        pack_rows(gradients, s);
        store_gradients(gradients, shared.ds[stage]);
        fence_async();
        named_wait(1, CONSUMER_THREADS); // ds is complete, and both consumers are done with the other stage's
                                         // ds
        issue_share(share, shared.ds[stage]);
        issue_rows(dk, gradients, shared.q[stage]);
        products_wait<1>();
        hold(share);
        hold(dv);
        hand_over(share, unit, at);
        products_wait<0>();
        hold(dk);
        release(shared.q_free[stage]);
        ring.advance();
    }

    /* Zeros the rows of both tiles from `count` on: 0 times garbage might be NaN. */
    __device__ inline void zero_rows(int count) const {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        for (int i = int(threadIdx.x); i < (KEYS - count) * F::WIDTH / 8; i += CONSUMER_THREADS) {
            const int vector = i / BLOCKS<F> + (i % BLOCKS<F> * KEYS + count) * 8; // by column blocks
            reinterpret_cast<uint4 *>(shared.keys)[vector] = zero;
            reinterpret_cast<uint4 *>(shared.values)[vector] = zero;
        }
        fence_async();
        named_wait(1, CONSUMER_THREADS);
    }

    __device__ inline void run(const Units &units) {
        for (uint32_t parity = 0;; parity ^= 1) {
            wait(&shared.keys_here, parity);
            const int number = shared.unit;
            if (number >= units.count) return;
            const Unit<F> unit(p, units, number);
            float dk[WIDE][4] = {}, dv[WIDE][4] = {};
            if (unit.steps > 0 && unit.first + KEYS > unit.length)
                zero_rows(max(0, unit.length - unit.first));
#pragma unroll 1
            for (int i = 0; i < unit.steps; i++) step(dk, dv, unit);
            release(shared.keys_free);
            const int key = unit.first + 64 * group + row;
#pragma unroll
            for (int n = 0; n < WIDE; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (key + i / 2 * 8 >= unit.length) dk[n][i] = dv[n][i] = 0.0f;
            if (p.angles) {
                float4 angles[WIDE / 2][2];
                load_angles(p, unit.b, 0, key, angles);
#pragma unroll
                for (int n = 0; n < WIDE / 2; n++) turn_back(angles[n], dk[n], dk[n + WIDE / 2]);
            }
            store_rows(dk, head_rows<bf16>(p, p.dk, unit.b, unit.kv_head), p.dk.row, key, p.keys, p.scale);
            store_rows(dv, head_rows<bf16>(p, p.dv, unit.b, unit.kv_head), p.dv.row, key, p.keys);
        }
    }
};

/* Anatomy. Parallel: over tiles of 128 keys, drawn by a ticket, and their queries; a warpgroup has 64 keys.
 * Launch: at most one block per multiprocessor, of 384. Holds: 168 registers, about 194 KiB shared; then
 * producer and adder 40, consumers 232 registers, some spill. Occupancy: shared memory and its bounds: one
 * block per multiprocessor, 12 warps. Reads: whole tiles by the copy engine (TMA), 2 stages ahead; shares of
 * dq in fp32. Syncs: barriers in shared memory between producer, adder and 2 consumers; blocks take turns at
 * dq. Fusion: delta, which statistics_kernel computes before it. */
template <class F>
__global__ void __launch_bounds__(BLOCK_THREADS, 1)
    hopper_backward_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps,
                           const Units units, int *ticket) {
    if constexpr (HOPPER) {
        extern __shared__ uint8_t shared_memory[];
        typename F::Shared &shared = *reinterpret_cast<typename F::Shared *>(
            shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024);
        if (threadIdx.x == 0) {
            barrier_init(&shared.keys_here, 1);
            barrier_init(&shared.keys_free, CONSUMER_WARPS + 1);
            for (int s = 0; s < STAGES; s++) {
                barrier_init(&shared.q_here[s], 1 + 32);
                barrier_init(&shared.q_free[s], CONSUMER_WARPS);
            }
            barrier_init(&shared.dq_free, 1);
            barrier_init(&shared.dq_here, CONSUMER_WARPS);
            fence_barrier_init();
        }
        __syncthreads();
        if (threadIdx.x >= CONSUMER_THREADS) {
            fewer_registers<40>();
            if (threadIdx.x < CONSUMER_THREADS + 32)
                produce<F>(p, maps, units, ticket, shared);
            else if (threadIdx.x == CONSUMER_THREADS + 32)
                add_shares<F>(p, units, shared);
        } else {
            more_registers<232>();
            Consumer<F>(p, shared).run(units);
        }
    }
}

int64_t query_tiles(const Problem &p) {
    return divide_up(p.queries, SHARE / p.width) * p.heads * p.batch;
}

template <class F>
Status launch(Ctx *ctx, const Problem &p) {
    const int64_t columns = int64_t(p.heads) * p.width, kv_columns = int64_t(p.kv_heads) * p.width;
    Maps maps;
    TRY(tensor_map(p.q, p.batch, p.queries, columns, F::QUERIES, F::WIDTH, &maps.q));
    TRY(tensor_map(p.dy, p.batch, p.queries, columns, F::QUERIES, F::WIDTH, &maps.dy));
    TRY(tensor_map(p.k, p.batch, p.keys, kv_columns, KEYS, F::WIDTH, &maps.k));
    TRY(tensor_map(p.v, p.batch, p.keys, kv_columns, KEYS, F::WIDTH, &maps.v));
    const int resident = cuda_device(ctx)->multiprocessors;
    const Units units = make_units(p, F::QUERIES, resident);
    const int64_t turns = query_tiles(p);
    TRY(ctx->device->fill(ctx->device, p.turns, 0, size_t(turns + 1) * sizeof(int)));
    return LAUNCH(ctx, hopper_backward_kernel<F>, units.count < resident ? units.count : resident,
                  BLOCK_THREADS, F::SHARED, p, maps, units, p.turns + turns);
}

} // namespace

bool fits_hopper_backward(const Ctx *ctx, const Problem &p) {
    const int64_t columns = int64_t(p.heads) * p.width, kv_columns = int64_t(p.kv_heads) * p.width;
    return cuda_device(ctx)->hopper && p.dtype == BF16 && (p.width == 64 || p.width == 128) && p.dq.vector &&
           p.dk.vector && p.dv.vector && tensor_map_fits(p.q, p.batch, p.queries, columns) &&
           tensor_map_fits(p.dy, p.batch, p.queries, columns) &&
           tensor_map_fits(p.k, p.batch, p.keys, kv_columns) &&
           tensor_map_fits(p.v, p.batch, p.keys, kv_columns);
}

Status take_hopper_backward(Ctx *ctx, Problem *p) {
    const int64_t tiles = query_tiles(*p);
    Tensor sums, turns;
    TRY(take(ctx, ARENA_SCRATCH, "attention.dq_sums", F32, shape2(tiles, SHARE), &sums));
    TRY(take(ctx, ARENA_SCRATCH, "attention.turns", I32, shape1(tiles + 1), &turns));
    p->dq_sums = data_of<float>(sums);
    p->turns = data_of<int>(turns);
    return OK;
}

Status backward_hopper(Ctx *ctx, const Problem *p) {
    return p->width == 64 ? launch<Tile<64>>(ctx, *p) : launch<Tile<128>>(ctx, *p);
}

} // namespace attention
