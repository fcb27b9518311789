/* Flash attention forward in bf16 for Hopper. */
#include "kernels/attention/cuda_hopper.cuh"
#include "kernels/attention/cuda_sm90_softmax.cuh"

/* Shah et al. 2024 (FlashAttention-3), algorithms 1 and 2. One warp of a block, the producer, copies tiles of
 * queries, keys and values to shared memory; the others form warpgroups with 64 queries each, the consumers.
 * In each step a consumer multiplies queries by the next keys, then probabilities in registers by the last
 * values. The tensor cores compute these products while another consumer, or the same one, computes its
 * softmax. The blocks are persistent, one per multiprocessor, so that the producer loads the next queries
 * while the previous output is written. */

namespace attention {
namespace hopper_forward { // a named namespace, because much of it is unused in builds for other GPUs

/* A tile of queries, as the producer describes it to the consumers: first row, head, batch row, number of
 * keys, and steps. Before the steps, `skipped` steps were omitted, whose keys no query sees. */
struct Tile {
    int first, head, b, length, skipped, steps;
};

/* Parameters: GROUPS consumers of 64 queries, KEYS keys per step, STAGES steps buffered in shared memory,
 * REGISTERS per consumer thread. ORDERED: the consumers take turns on the tensor cores, so that one
 * multiplies while the others compute their softmax. OVERLAPPED: a consumer's softmax overlaps with its own
 * product of the values; with four consumers the others' products overlap as well. Sums: Softmax, or
 * OrderedSoftmax for FUSE_INVARIANT. */
template <int WIDTH_, int GROUPS_, int KEYS_, int STAGES_, int REGISTERS_, bool ORDERED_, class Sums_>
struct Tiling {
    static constexpr int WIDTH = WIDTH_, GROUPS = GROUPS_, KEYS = KEYS_, STAGES = STAGES_;
    static constexpr int QUERIES = 64 * GROUPS, CONSUMER_WARPS = 4 * GROUPS;
    static constexpr int THREADS = (GROUPS + 1) * WARPGROUP, REGISTERS = REGISTERS_;
    static constexpr bool ORDERED = ORDERED_, OVERLAPPED = GROUPS == 2;
    typedef Sums_ Sums;

    struct Shared {
        bf16 queries[2][QUERIES * WIDTH];
        bf16 keys[STAGES][KEYS * WIDTH], values[STAGES][KEYS * WIDTH];
        Tile tiles[2];
        uint64_t queries_here[2], queries_free[2];
        uint64_t keys_here[STAGES], keys_free[STAGES], values_here[STAGES], values_free[STAGES];
    };
    static constexpr size_t SHARED = sizeof(Shared);
    static_assert(SHARED <= 227 * 1024, "what a block of a Hopper can have");
};

struct Maps {
    CUtensorMap q, k, v;
};

/* The tiles of queries of a block. If all tiles are equally long, a block takes tile blockIdx.x and every
 * gridDim.x-th after it (EQUAL). Under a causal mask tiles differ in length, and a unit is a pair of tiles,
 * the i-th longest and the i-th shortest of a head, so that all units are equal work (PAIRED). If that makes
 * too few units, the tiles of all heads are dealt to the blocks from the longest on, in alternating direction
 * (DEALT). */
enum Order { EQUAL, PAIRED, DEALT };

struct Schedule {
    int tiles, per_head, units;
    Order order;

    __host__ __device__ Schedule(const Problem &p, int rows, Order order)
        : tiles((p.queries + rows - 1) / rows), per_head(order == PAIRED ? (tiles + 1) / 2 : tiles),
          units(per_head * p.heads * p.batch), order(order) {}

    /* The block's unit in a round, possibly beyond the last unit. */
    __device__ int unit(int round) const {
        const bool back = order == DEALT && round % 2;
        return round * int(gridDim.x) + (back ? int(gridDim.x) - 1 - int(blockIdx.x) : int(blockIdx.x));
    }

    /* The number of tiles of this block. */
    __device__ int turns() const {
        const int whole = units / int(gridDim.x);
        return (whole + (unit(whole) < units)) * (order == PAIRED ? 2 : 1);
    }

    /* The block's `turn`-th tile; beyond the queries for the second half of a pair whose tiles coincide. */
    __device__ HeadTile get(const Problem &p, int turn) const {
        const int at = unit(order == PAIRED ? turn / 2 : turn), heads = units / per_head;
        const int i = order == DEALT ? at / heads : at % per_head,
                  head = order == DEALT ? at % heads : at / per_head;
        const bool second = order == PAIRED && turn % 2;
        return {second ? (2 * i == tiles - 1 ? tiles : i) : tiles - 1 - i, head % p.heads, head / p.heads};
    }
};

/* Steps of KEYS keys that queries [first, first + rows) need after the first `skipped`. */
template <int KEYS>
__device__ inline int steps_of(const Problem &p, int length, int skipped, int first, int rows) {
    if (first >= p.queries) return 0;
    return (keys_seen(p, length, min(first + rows, p.queries) - 1) + KEYS - 1) / KEYS - skipped;
}

template <class F>
__device__ inline void produce(const Problem &p, const Maps &maps, const Schedule &schedule,
                               typename F::Shared &shared) {
    constexpr int BLOCKS = F::WIDTH / BLOCK_COLUMNS;
    Ring<F::STAGES> ring;
    Ring<2> tiles;
    for (int turn = 0, turns = schedule.turns(); turn < turns; turn++) {
        const HeadTile mine = schedule.get(p, turn);
        const int first = mine.tile * F::QUERIES, length = key_length(p, mine.b);
        const int kv_block = mine.head / p.group * BLOCKS;
        const int skipped = first_key(p, mine.b, first) / F::KEYS;
        const int steps = steps_of<F::KEYS>(p, length, skipped, first, F::QUERIES);
        uint64_t *const here = &shared.queries_here[tiles.stage];
        wait(&shared.queries_free[tiles.stage], tiles.parity ^ 1);
        shared.tiles[tiles.stage] = {first, mine.head, mine.b, length, skipped, steps};
        arrive_expecting(here, sizeof(shared.queries[0]));
        load_tile_async(shared.queries[tiles.stage], maps.q, first, mine.head * BLOCKS, mine.b, here);
        tiles.advance();
        for (int step = 0; step < steps; step++, ring.advance()) {
            const int s = ring.stage, row = (skipped + step) * F::KEYS;
            wait(&shared.keys_free[s], ring.parity ^ 1);
            arrive_expecting(&shared.keys_here[s], sizeof(shared.keys[s]));
            load_tile_async(shared.keys[s], maps.k, row, kv_block, mine.b, &shared.keys_here[s]);
            wait(&shared.values_free[s], ring.parity ^ 1);
            arrive_expecting(&shared.values_here[s], sizeof(shared.values[s]));
            load_tile_async(shared.values[s], maps.v, row, kv_block, mine.b, &shared.values_here[s]);
        }
    }
}

/* Sets scores of invisible keys to -inf: keys at or beyond a number, and keys before the row's document.
 * `row` and `key` are this thread's first. */
template <int N>
__device__ inline void mask(float (&s)[N][4], const Problem &p, const Tile &tile, int row, int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int seen = keys_seen(p, tile.length, row + 8 * half) - key;
        const int from = first_key(p, tile.b, row + 8 * half) - key;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (8 * n + i >= seen || 8 * n + i < from) s[n][2 * half + i] = -INFINITY;
    }
}

/* Zeros the rows of a tile of values from `count` on: 0 times garbage might be NaN. A consumer calls it. */
template <class F>
__device__ inline void zero_rows(bf16 *values, int count, int group) {
    const int thread = int(threadIdx.x) % WARPGROUP;
    for (int vector = thread; vector < (F::KEYS - count) * F::WIDTH / 8; vector += WARPGROUP) {
        const int row = count + vector / (F::WIDTH / 8), column = vector % (F::WIDTH / 8) * 8;
        bf16 *const to = values + (column / 64 * F::KEYS + row) * 64 + column % 64;
        *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
    }
    fence_async();
    named_wait(1 + F::GROUPS + group, WARPGROUP);
}

/* Divides by the sums and writes the output and lse. A row that saw no key becomes 0; one that saw a NaN
 * stays NaN. `row` is this thread's first row. */
template <class S, int N>
__device__ inline void finish(const Problem &p, const Tile &tile, int row, const S &softmax,
                              float (&o)[N][4]) {
    float inverse[2];
    float *const lse = p.lse ? p.lse + (int64_t(tile.b) * p.heads + tile.head) * p.queries : nullptr;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = row + 8 * half;
        const float sum = quad_sum(softmax.sum[half]);
        inverse[half] = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
        if (lse && threadIdx.x % 4 == 0 && i < p.queries)
            lse[i] = sum == 0.0f ? -INFINITY : (softmax.base[half] + __log2f(sum)) * LN_2;
    }
    scale_rows(o, inverse);
    store_rows(o, head_rows<bf16>(p, p.y, tile.b, tile.head), p.y.row, row, p.queries);
}

/* A consumer's position in the pipeline. */
template <class F>
struct Consumer {
    typename F::Shared &shared;
    Ring<F::STAGES> ring; // stages of keys and values
    Ring<2> tiles;        // stages of queries
    int group, lane;

    __device__ Consumer(typename F::Shared &shared)
        : shared(shared), group(__shfl_sync(~0u, int(threadIdx.x) / WARPGROUP, 0)),
          lane(int(threadIdx.x) % 32) {}

    /* The 64 queries of a tile that this consumer computes. Every second tile reverses the order, because
     * under a causal mask the last queries take the most steps. */
    __device__ int part() const { return tiles.stage ? F::GROUPS - 1 - group : group; }

    __device__ void release(uint64_t &barrier) const {
        if (lane == 0) arrive(&barrier);
    }
    __device__ void begin_turn() const {
        if constexpr (F::ORDERED) named_wait(1 + group, 2 * WARPGROUP);
    }
    __device__ void end_turn() const {
        if constexpr (F::ORDERED) named_arrive(1 + (group + 1) % F::GROUPS, 2 * WARPGROUP);
    }

    __device__ void issue_scores(float (&s)[F::KEYS / 8][4], int stage) const {
        const uint64_t q = rows_operand(shared.queries[tiles.stage] + part() * 64 * 64);
        const uint64_t k = rows_operand(shared.keys[stage]);
        products_begin();
#pragma unroll
        for (int c = 0; c < F::WIDTH; c += 16)
            multiply_async<false, false>(s, advance(q, c / 64 * F::QUERIES * ROW_BYTES + c % 64 * 2),
                                         advance(k, c / 64 * F::KEYS * ROW_BYTES + c % 64 * 2), c > 0);
        products_commit();
    }
    __device__ inline void issue_output(float (&o)[F::WIDTH / 8][4],
                                        const uint32_t (&probabilities)[F::KEYS / 16][4], int stage) const {
        const uint64_t v = columns_operand(shared.values[stage], F::KEYS * ROW_BYTES);
        products_begin();
#pragma unroll
        for (int k = 0; k < F::KEYS / 16; k++)
            multiply_async<true>(o, probabilities[k], advance(v, 16 * k * ROW_BYTES), F::Sums::ADDS || k > 0);
        products_commit();
    }
};

/* Computes the consumer's 64 rows of one tile of queries. */
template <class F>
__device__ inline void attend(Consumer<F> &own, const Problem &p, const Tile &tile) {
    const int first = tile.first + 64 * own.part(), column = own.lane % 4 * 2;
    const int row = first + int(threadIdx.x) % WARPGROUP / 32 * 16 + own.lane / 4; // this thread's first row
    const int length = tile.length, own_steps = steps_of<F::KEYS>(p, length, tile.skipped, first, 64);
    // steps that all rows see completely, apart from keys before the start of the last row's document
    const int unmasked = keys_seen(p, length, first) / F::KEYS - tile.skipped;
    const int parted = first_key(p, tile.b, first + 63);
    const int ragged = p.key_lengths && length % F::KEYS ? length / F::KEYS : -1;
    const float scale = p.scale * LOG2_E;
    float o[F::WIDTH / 8][4] = {}, s[F::KEYS / 8][4];
    uint32_t probabilities[F::KEYS / 16][4];
    typename F::Sums softmax;

    if (own_steps > 0) {
        wait(&own.shared.keys_here[own.ring.stage], own.ring.parity);
        own.begin_turn();
        own.issue_scores(s, own.ring.stage);
        own.end_turn();
        products_wait<0>();
        hold(s);
        own.release(own.shared.keys_free[own.ring.stage]);
        const int key = tile.skipped * F::KEYS;
        if (unmasked == 0 || key < parted) mask(s, p, tile, row, key + column);
        softmax.step(s, scale);
        pack_rows(probabilities, s);
    }
#pragma unroll 1
    for (int step = 1; step < own_steps; step++) {
        const Ring<F::STAGES> last = own.ring;
        own.ring.advance();
        wait(&own.shared.keys_here[own.ring.stage], own.ring.parity);
        own.begin_turn();
        own.issue_scores(s, own.ring.stage);
        wait(&own.shared.values_here[last.stage], last.parity);
        own.issue_output(softmax.target(o), probabilities, last.stage);
        own.end_turn();
        products_wait<1>();
        hold(s);
        own.release(own.shared.keys_free[own.ring.stage]);
        const int key = (tile.skipped + step) * F::KEYS;
        if (step >= unmasked || key < parted) mask(s, p, tile, row, key + column);
        softmax.step(s, scale);
        if constexpr (F::OVERLAPPED) { // never true, but it keeps the compiler from moving the wait up
            if (softmax.sum[0] + softmax.sum[1] < 0.0f) __nanosleep(1);
        }
        products_wait<0>();
        hold(softmax.target(o));
        own.release(own.shared.values_free[last.stage]);
        softmax.settle(o);
        pack_rows(probabilities, s);
    }
    own.release(own.shared.queries_free[own.tiles.stage]);
    own.tiles.advance();
    if (own_steps > 0) {
        wait(&own.shared.values_here[own.ring.stage], own.ring.parity);
        if (own_steps - 1 == ragged)
            zero_rows<F>(own.shared.values[own.ring.stage], length % F::KEYS, own.group);
        own.issue_output(softmax.target(o), probabilities, own.ring.stage);
        products_wait<0>();
        hold(softmax.target(o));
        softmax.settle_last(o);
        own.release(own.shared.values_free[own.ring.stage]);
        own.ring.advance();
    }
    for (int step = own_steps; step < tile.steps; step++, own.ring.advance()) { // steps of the other
                                                                                // consumers
        own.begin_turn();
        own.end_turn();
        wait(&own.shared.keys_here[own.ring.stage], own.ring.parity);
        own.release(own.shared.keys_free[own.ring.stage]);
        wait(&own.shared.values_here[own.ring.stage], own.ring.parity);
        own.release(own.shared.values_free[own.ring.stage]);
    }
    finish(p, tile, row, softmax, o);
}

template <class F>
__device__ inline void consume(const Problem &p, int turns, typename F::Shared &shared) {
    Consumer<F> own(shared);
    if (own.group == F::GROUPS - 1) own.end_turn(); // passes the turn to the first consumer
    for (int turn = 0; turn < turns; turn++) {
        wait(&shared.queries_here[own.tiles.stage], own.tiles.parity);
        const Tile &next = shared.tiles[own.tiles.stage];
        const Tile tile = {uniform(next.first),  uniform(next.head),    uniform(next.b),
                           uniform(next.length), uniform(next.skipped), uniform(next.steps)};
        attend(own, p, tile);
    }
    if (own.group == 0) own.begin_turn(); // the last consumer has passed the turn on
}

/* Anatomy. Parallel: over tiles of 64 to 256 queries of a head, from which a block goes to its next; a
 * warpgroup has 64. Launch: at most one block per multiprocessor, of 256 to 640. Holds: 96 to 240 registers,
 * 144 to 192 KiB shared; then the producer 24, consumers 112 to 240 registers. Occupancy: shared memory and
 * its bounds: one block per multiprocessor, 8 to 20 warps. Reads: whole tiles by the copy engine (TMA), 2 to
 * 8 steps ahead. Syncs: barriers in shared memory between the producer and 1 to 4 consumers; none of the
 * block. Fusion: the rotary turn of q and k. */
template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    hopper_forward_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps, Order order) {
    if constexpr (HOPPER) {
        extern __shared__ __align__(1024) uint8_t shared_memory[]; // swizzled groups of 8 rows are 1024 bytes
        typename F::Shared &shared = *reinterpret_cast<typename F::Shared *>(shared_memory);
        if (threadIdx.x == 0) {
            for (int s = 0; s < 2; s++) {
                barrier_init(&shared.queries_here[s], 1);
                barrier_init(&shared.queries_free[s], F::CONSUMER_WARPS);
            }
            for (int s = 0; s < F::STAGES; s++) {
                barrier_init(&shared.keys_here[s], 1);
                barrier_init(&shared.values_here[s], 1);
                barrier_init(&shared.keys_free[s], F::CONSUMER_WARPS);
                barrier_init(&shared.values_free[s], F::CONSUMER_WARPS);
            }
            fence_barrier_init();
        }
        __syncthreads();
        const Schedule schedule(p, F::QUERIES, order);
        if (threadIdx.x >= F::GROUPS * WARPGROUP) {
            fewer_registers<24>();
            if (threadIdx.x % WARPGROUP == 0) produce<F>(p, maps, schedule, shared);
        } else {
            more_registers<F::REGISTERS>();
            consume<F>(p, schedule.turns(), shared);
        }
    }
}

template <class F>
Status launch(Ctx *ctx, const Problem &p) {
    Maps maps;
    TRY(tensor_map(p.q, p.batch, p.queries, int64_t(p.heads) * p.width, F::QUERIES, F::WIDTH, &maps.q));
    TRY(tensor_map(p.k, p.batch, p.keys, int64_t(p.kv_heads) * p.width, F::KEYS, F::WIDTH, &maps.k));
    TRY(tensor_map(p.v, p.batch, p.keys, int64_t(p.kv_heads) * p.width, F::KEYS, F::WIDTH, &maps.v));
    const int resident = cuda_device(ctx)->multiprocessors;
    const bool many =
        Schedule(p, F::QUERIES, PAIRED).units >= 4 * resident; // enough units to distribute evenly
    const Order order = !p.causal ? EQUAL : many ? PAIRED : DEALT;
    const int units = Schedule(p, F::QUERIES, order).units;
    return LAUNCH(ctx, hopper_forward_kernel<F>, units < resident ? units : resident, F::THREADS, F::SHARED,
                  p, maps, order);
}

} // namespace hopper_forward

bool fits_hopper_forward(const Ctx *ctx, const Problem &p) {
    const int64_t columns = int64_t(p.heads) * p.width, kv_columns = int64_t(p.kv_heads) * p.width;
    return cuda_device(ctx)->hopper && p.dtype == BF16 && (p.width == 64 || p.width == 128) && p.y.vector &&
           tensor_map_fits(p.q, p.batch, p.queries, columns) &&
           tensor_map_fits(p.k, p.batch, p.keys, kv_columns) &&
           tensor_map_fits(p.v, p.batch, p.keys, kv_columns);
}

Status forward_hopper(Ctx *ctx, const Problem *p) {
    using namespace hopper_forward;
    const int64_t heads = int64_t(p->heads) * p->batch, resident = cuda_device(ctx)->multiprocessors;
    const bool few = divide_up(p->queries, 64) * heads < 2 * resident; // smaller tiles make more blocks
    if (ctx->fuses & FUSE_INVARIANT) {
        if (p->width == 128)
            return launch<Tiling<128, 2, ORDER_KEYS, 4, 240, false, OrderedSoftmax<128>>>(ctx, *p);
        return few ? launch<Tiling<64, 1, ORDER_KEYS, 8, 240, false, OrderedSoftmax<64>>>(ctx, *p)
                   : launch<Tiling<64, 3, ORDER_KEYS, 8, 160, false, OrderedSoftmax<64>>>(ctx, *p);
    }
    if (p->width == 128) return launch<Tiling<128, 2, 128, 2, 240, false, Softmax<128>>>(ctx, *p);
    if (p->queries > 256 && divide_up(p->queries, 256) * heads < 2 * resident)
        return launch<Tiling<64, 2, 128, 4, 240, true, Softmax<64>>>(ctx, *p);
    return p->causal ? launch<Tiling<64, 4, 64, 8, 112, false, Softmax<64>>>(ctx, *p)
                     : launch<Tiling<64, 4, 64, 8, 112, true, Softmax<64>>>(ctx, *p);
}

} // namespace attention
