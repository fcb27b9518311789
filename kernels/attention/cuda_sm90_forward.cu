/* Flash attention forward in bf16 for Hopper: Shah et al. 2024 (FlashAttention-3), algorithms 1 and 2. One
 * warp of a block, the producer, copies tiles of queries, keys and values to shared memory; the others are
 * warpgroups with 64 queries each, the consumers. A consumer has two products under way while it works on a
 * softmax: the scores of the next keys were issued before the values' product of the last, and the
 * probabilities stay in registers. Blocks are as many as are resident, and each goes from one tile of queries
 * to the next, so that the producer already loads the next one's while the last one's output is written. */
#include "kernels/attention/cuda_hopper.cuh"

namespace attention {
namespace hopper_forward { // not an anonymous one: in a build for other GPUs much of it is not used

/* GROUPS consumers of 64 queries, KEYS keys a step, STAGES steps under way in shared memory, RESIDENT blocks on
 * a multiprocessor. ORDERED: the consumers take turns at the tensor cores, so that while one multiplies the
 * other is at its softmax. */
template <int WIDTH_, int GROUPS_, int KEYS_, int STAGES_, int RESIDENT_, int REGISTERS_, bool ORDERED_>
struct Tiling {
    static constexpr int WIDTH = WIDTH_, GROUPS = GROUPS_, KEYS = KEYS_, STAGES = STAGES_;
    static constexpr int RESIDENT = RESIDENT_, QUERIES = 64 * GROUPS, CONSUMER_WARPS = 4 * GROUPS;
    static constexpr int THREADS = (GROUPS + 1) * WARPGROUP, REGISTERS = REGISTERS_;
    static constexpr bool ORDERED = ORDERED_;

    struct Shared {
        bf16 queries[2][QUERIES * WIDTH];
        bf16 keys[STAGES][KEYS * WIDTH], values[STAGES][KEYS * WIDTH];
        uint64_t queries_here[2], queries_free[2];
        uint64_t keys_here[STAGES], keys_free[STAGES], values_here[STAGES], values_free[STAGES];
    };
    static constexpr size_t SHARED = sizeof(Shared) + 1024; // its start is rounded up for the swizzle
};

struct Maps {
    CUtensorMap q, k, v;
};

/* A block's tiles of queries: unit blockIdx.x, and every gridDim.x after it. A unit is one tile or, where
 * `paired`, two, the i-th longest and the i-th shortest of a head, so that under a causal mask all units are
 * as much work. */
struct Schedule {
    int tiles, per_head, units;
    bool paired;

    __host__ __device__ Schedule(const Problem &p, int rows, bool paired)
        : tiles((p.queries + rows - 1) / rows), per_head(paired ? (tiles + 1) / 2 : tiles),
          units(per_head * p.heads * p.batch), paired(paired) {}

    /* The block's `turn`-th tile, if there is one: tile < 0 where a pair has only one, false at the end. */
    __device__ bool get(const Problem &p, int turn, Place &place) const {
        const int unit = (paired ? turn / 2 : turn) * int(gridDim.x) + int(blockIdx.x);
        if (unit >= units) return false;
        const int i = unit % per_head, head = unit / per_head;
        const bool second = paired && turn % 2;
        place = {second ? i : tiles - 1 - i, head % p.heads, head / p.heads};
        if (second && 2 * i == tiles - 1) place.tile = -1;
        return true;
    }
};

/* Steps of `keys` keys that the queries [first, first + rows) need. */
template <int KEYS>
__device__ inline int steps_of(const Problem &p, int length, int first, int rows) {
    if (first >= p.queries) return 0;
    return (keys_seen(p, length, min(first + rows, p.queries) - 1) + KEYS - 1) / KEYS;
}

template <class F>
__device__ inline void produce(const Problem &p, const Maps &maps, const Schedule &schedule,
                               typename F::Shared &shared) {
    constexpr int BLOCKS = F::WIDTH / BLOCK_COLUMNS;
    Ring<F::STAGES> ring;
    Ring<2> tile;
    Place place;
    for (int turn = 0; schedule.get(p, turn, place); turn++) {
        if (place.tile < 0) continue;
        const int first = place.tile * F::QUERIES, kv_block = place.head / p.group * BLOCKS;
        const int steps = steps_of<F::KEYS>(p, key_length(p, place.b), first, F::QUERIES);
        if (steps == 0) continue;
        wait(&shared.queries_free[tile.stage], tile.parity ^ 1);
        arrive_expecting(&shared.queries_here[tile.stage], sizeof(shared.queries[tile.stage]));
        load_tile_async(shared.queries[tile.stage], maps.q, first, place.head * BLOCKS, place.b,
                        &shared.queries_here[tile.stage]);
        tile.advance();
        for (int step = 0; step < steps; step++, ring.advance()) {
            const int s = ring.stage, row = step * F::KEYS;
            wait(&shared.keys_free[s], ring.parity ^ 1);
            arrive_expecting(&shared.keys_here[s], sizeof(shared.keys[s]));
            load_tile_async(shared.keys[s], maps.k, row, kv_block, place.b, &shared.keys_here[s]);
            wait(&shared.values_free[s], ring.parity ^ 1);
            arrive_expecting(&shared.values_here[s], sizeof(shared.values[s]));
            load_tile_async(shared.values[s], maps.v, row, kv_block, place.b, &shared.values_here[s]);
        }
    }
}

/* One query row's running softmax, for the rows g and g + 8 of a warp that this thread holds. `sum` covers this
 * thread's columns only until the end. */
struct Softmax {
    float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

    /* Turns scores into exp(score - maximum); `correction` is for what was accumulated before. */
    template <int N>
    __device__ inline void step(float (&s)[N][4], float scale, float (&correction)[2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = maximum[half];
#pragma unroll
            for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            // a row that has seen nothing yet has maximum -inf, and all its exponentials must be 0
            const float base = most == -INFINITY ? 0.0f : most * scale;
            correction[half] = power_of_two(maximum[half] * scale - base);
            maximum[half] = most;
            float total = sum[half] * correction[half];
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[n][i] = power_of_two(s[n][i] * scale - base);
                    total += s[n][i];
                }
            sum[half] = total;
        }
    }
};

/* Scores of keys at or beyond the number that their row may see become -inf. `row` and `key` are this thread's
 * first. */
template <int N>
__device__ inline void mask(float (&s)[N][4], const Problem &p, int length, int row, int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int seen = keys_seen(p, length, row + 8 * half) - key;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (8 * n + i >= seen) s[n][2 * half + i] = -INFINITY;
    }
}

template <int N>
__device__ inline void scale_rows(float (&o)[N][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][i] *= factor[i / 2];
}

/* Zeros the rows from `count` on of a tile of values: 0 times what lies there might be NaN. By a consumer. */
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

/* Rows of accumulators to rows of y. Four lanes hold a row, two neighbours of every eight columns each; they
 * exchange them so that each stores eight neighbours. `row` is this thread's first. */
template <int N>
__device__ inline void store_output(const float (&o)[N][4], bf16 *y, int64_t stride, int row, int end) {
    const int t = int(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) word[i] = pack(o[n + i][2 * half], o[n + i][2 * half + 1]);
#pragma unroll
            for (int distance = 1; distance <= 2; distance *= 2) // transposes 2 x 2, then 2 x 2 of those
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    const int low = distance == 1 ? 2 * pair : pair;
                    const bool upper = t & distance;
                    const uint32_t sent = upper ? word[low] : word[low + distance];
                    const uint32_t received = __shfl_xor_sync(~0u, sent, distance);
                    (upper ? word[low] : word[low + distance]) = received;
                }
            if (row + 8 * half < end)
                *reinterpret_cast<uint4 *>(y + (row + 8 * half) * stride + 8 * (n + t)) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
}

/* What a consumer knows of its place in the block. */
template <class F>
struct Consumer {
    typename F::Shared &shared;
    Ring<F::STAGES> ring; // the keys and values
    Ring<2> tile;         // the queries
    int group, lane, row; // row: this thread's first of the block's

    __device__ Consumer(typename F::Shared &shared)
        : shared(shared), group(int(threadIdx.x) / WARPGROUP), lane(int(threadIdx.x) % 32),
          row(int(threadIdx.x) / 32 * 16 + lane / 4) {}

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
        const uint64_t q = rows_operand(shared.queries[tile.stage] + group * 64 * 64);
        const uint64_t k = rows_operand(shared.keys[stage]);
        products_begin();
#pragma unroll
        for (int c = 0; c < F::WIDTH; c += 16)
            multiply_async<false, false>(s, advance(q, c / 64 * F::QUERIES * ROW_BYTES + c % 64 * 2),
                                         advance(k, c / 64 * F::KEYS * ROW_BYTES + c % 64 * 2), c > 0);
        products_commit();
    }
    __device__ void issue_output(float (&o)[F::WIDTH / 8][4],
                                 const uint32_t (&probabilities)[F::KEYS / 16][4], int stage) const {
        const uint64_t v = columns_operand(shared.values[stage], F::KEYS * ROW_BYTES);
        products_begin();
#pragma unroll
        for (int k = 0; k < F::KEYS / 16; k++)
            multiply_async<true>(o, probabilities[k], advance(v, 16 * k * ROW_BYTES), true);
        products_commit();
    }
};

template <int N>
__device__ inline void pack_rows(uint32_t (&left)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            left[k][i] = pack(c[2 * k + i / 2][2 * (i % 2)], c[2 * k + i / 2][2 * (i % 2) + 1]);
}

/* One tile of queries: the consumer's 64 rows of it from `first` on. */
template <class F>
__device__ inline void attend(Consumer<F> &own, const Problem &p, const Place &place, int steps) {
    const int first = place.tile * F::QUERIES + 64 * own.group, length = key_length(p, place.b);
    const int row = place.tile * F::QUERIES + own.row, column = own.lane % 4 * 2;
    const int own_steps = steps_of<F::KEYS>(p, length, first, 64);
    const int unmasked = keys_seen(p, length, first) / F::KEYS; // steps that all rows see whole
    const int ragged = p.key_lengths && length % F::KEYS ? length / F::KEYS : -1;
    const float scale = p.scale * LOG2_E;
    float o[F::WIDTH / 8][4] = {}, s[F::KEYS / 8][4], correction[2];
    uint32_t probabilities[F::KEYS / 16][4];
    Softmax softmax;

    if (steps > 0) wait(&own.shared.queries_here[own.tile.stage], own.tile.parity);
    if (own_steps > 0) {
        wait(&own.shared.keys_here[own.ring.stage], own.ring.parity);
        own.begin_turn();
        own.issue_scores(s, own.ring.stage);
        own.end_turn();
        products_wait<0>();
        hold(s);
        own.release(own.shared.keys_free[own.ring.stage]);
        if (unmasked == 0) mask(s, p, length, row, column);
        softmax.step(s, scale, correction);
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
        own.issue_output(o, probabilities, last.stage);
        own.end_turn();
        products_wait<1>();
        hold(s);
        own.release(own.shared.keys_free[own.ring.stage]);
        if (step >= unmasked) mask(s, p, length, row, step * F::KEYS + column);
        softmax.step(s, scale, correction);
        hold(s); // the softmax comes before the wait, not after
        products_wait<0>();
        hold(o);
        own.release(own.shared.values_free[last.stage]);
        scale_rows(o, correction);
        pack_rows(probabilities, s);
    }
    if (steps > 0) {
        own.release(own.shared.queries_free[own.tile.stage]);
        own.tile.advance();
    }
    if (own_steps > 0) {
        wait(&own.shared.values_here[own.ring.stage], own.ring.parity);
        if (own_steps - 1 == ragged)
            zero_rows<F>(own.shared.values[own.ring.stage], length % F::KEYS, own.group);
        own.issue_output(o, probabilities, own.ring.stage);
        products_wait<0>();
        hold(o);
        own.release(own.shared.values_free[own.ring.stage]);
        own.ring.advance();
    }
    for (int step = own_steps; step < steps; step++, own.ring.advance()) { // the other consumers' steps
        own.begin_turn();
        own.end_turn();
        wait(&own.shared.keys_here[own.ring.stage], own.ring.parity);
        own.release(own.shared.keys_free[own.ring.stage]);
        wait(&own.shared.values_here[own.ring.stage], own.ring.parity);
        own.release(own.shared.values_free[own.ring.stage]);
    }

    // divides by the sums; a row that saw no key becomes 0, one that saw a NaN stays NaN
    float inverse[2];
    float *const lse = p.lse ? p.lse + (int64_t(place.b) * p.heads + place.head) * p.queries : nullptr;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = softmax.sum[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
        if (lse && column == 0 && row + 8 * half < p.queries)
            lse[row + 8 * half] =
                sum == 0.0f ? -INFINITY : (softmax.maximum[half] * scale + log2f(sum)) * LN_2;
    }
    scale_rows(o, inverse);
    store_output(o, head_rows<bf16>(p, p.y, place.b, place.head), p.y.row, row, p.queries);
}

template <class F>
__device__ inline void consume(const Problem &p, const Schedule &schedule, typename F::Shared &shared) {
    Consumer<F> own(shared);
    Place place;
    if (own.group == F::GROUPS - 1) own.end_turn(); // the first's turn
    for (int turn = 0; schedule.get(p, turn, place); turn++) {
        if (place.tile < 0) continue;
        attend(own, p, place,
               steps_of<F::KEYS>(p, key_length(p, place.b), place.tile * F::QUERIES, F::QUERIES));
    }
    if (own.group == 0) own.begin_turn(); // the last has been given back
}

template <class F>
__global__ void __launch_bounds__(F::THREADS, F::RESIDENT)
    hopper_forward_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps, bool paired) {
    if constexpr (HOPPER) {
        extern __shared__ uint8_t shared_memory[];
        typename F::Shared &shared = *reinterpret_cast<typename F::Shared *>(
            shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024);
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
        const Schedule schedule(p, F::QUERIES, paired);
        if (threadIdx.x >= F::GROUPS * WARPGROUP) {
            fewer_registers<24>();
            if (threadIdx.x % WARPGROUP == 0) produce<F>(p, maps, schedule, shared);
        } else {
            more_registers<F::REGISTERS>();
            consume<F>(p, schedule, shared);
        }
    }
}

template <class F>
Status launch(Ctx *ctx, const Problem &p) {
    Maps maps;
    TRY(tensor_map(p.q, p.batch, p.queries, int64_t(p.heads) * p.width, F::QUERIES, F::WIDTH, &maps.q));
    TRY(tensor_map(p.k, p.batch, p.keys, int64_t(p.kv_heads) * p.width, F::KEYS, F::WIDTH, &maps.k));
    TRY(tensor_map(p.v, p.batch, p.keys, int64_t(p.kv_heads) * p.width, F::KEYS, F::WIDTH, &maps.v));
    const int resident = F::RESIDENT * cuda_device(ctx)->multiprocessors;
    const bool paired = p.causal && Schedule(p, F::QUERIES, true).units >= 4 * resident;
    const int units = Schedule(p, F::QUERIES, paired).units;
    return LAUNCH(ctx, hopper_forward_kernel<F>, units < resident ? units : resident, F::THREADS, F::SHARED,
                  p, maps, paired);
}

} // namespace hopper_forward

bool fits_hopper_forward(const Ctx *ctx, const Problem &p) {
    const int64_t columns = int64_t(p.heads) * p.width, kv_columns = int64_t(p.kv_heads) * p.width;
    return cuda_device(ctx)->capability == 90 && p.dtype == BF16 && (p.width == 64 || p.width == 128) &&
           p.y.vector && tensor_map_fits(p.q, p.batch, p.queries, columns) &&
           tensor_map_fits(p.k, p.batch, p.keys, kv_columns) &&
           tensor_map_fits(p.v, p.batch, p.keys, kv_columns);
}

Status forward_hopper(Ctx *ctx, const Problem *p) {
    using namespace hopper_forward;
    if (p->width == 64) return launch<Tiling<64, 4, 64, 8, 1, 112, false>>(ctx, *p);
    return launch<Tiling<128, 2, 128, 2, 1, 240, true>>(ctx, *p);
}

} // namespace attention
