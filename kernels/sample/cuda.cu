/* Samples a token in a cluster of blocks, each with a share of the row. */
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sample/sample.h"
#include "kernels/sample/weight.h"

/* On GPUs without clusters one block samples. Latency dominates, because the sums depend on one another. The
 * steps are those of cpu.c. Weights are in shared memory if they fit, else in device memory. */

namespace {

constexpr int THREADS = 512, WARP = 32, WARPS = THREADS / WARP;
constexpr int CLUSTER = 8; // blocks per cluster
constexpr int WIDTH = 4;   // neighbouring ids per access: 16 bytes
constexpr int CUTS = 3;    // thresholds tested at once
constexpr int NUMBERS = 2 * CUTS;

/* The number of weights at or above a threshold, and their sum. */
struct Reach {
    int64_t count, mass;
};

/* The threshold of the kept ids: all with weights from `high` up, and the first `ties` ids with weights in
 * [low, high), which are all equal or a single one. */
struct Cut {
    int32_t low, high;
    Reach above; // reach of the weights from `high` up
    int64_t ties, mass;
};

/* A block's share of the row. Weights are padded with zeros to a multiple of WIDTH. */
struct Row {
    const float *logits; // (count)
    int32_t *weights;    // (count)
    int first, count;    // the first id; number of ids
};

struct Total {
    /* redux adds 32 bits, so each lane's number is added in pieces of 22 bits. */
    __device__ uint64_t of_warp(uint64_t x) const {
        const uint64_t low = __reduce_add_sync(0xffffffffu, uint32_t(x) & 0x3fffffu);
        const uint64_t middle = __reduce_add_sync(0xffffffffu, uint32_t(x >> 22) & 0x3fffffu);
        return low + (middle << 22) + (uint64_t(__reduce_add_sync(0xffffffffu, uint32_t(x >> 44))) << 44);
    }
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

struct Largest {
    __device__ uint64_t of_warp(uint64_t x) const { return warp_reduce(x, *this); }
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

/* Exchange between blocks. Two sets of slots alternate, so that one cluster barrier per exchange suffices:
 * no block overwrites a slot that another may still read. */
template <int BLOCKS>
struct Slots {
    uint64_t of_warp[NUMBERS][WARPS], of_block[2][NUMBERS][BLOCKS];
};

template <int BLOCKS>
struct Exchange {
    Slots<BLOCKS> *slots; // in shared memory
    int rank, turn;

    __device__ void meet() const {
        if constexpr (BLOCKS == 1) {
            __syncthreads();
        } else {
            gpu::cluster_arrive();
            gpu::cluster_join();
        }
    }

    /* Combines each warp's numbers, equal in all lanes, within each block: number n of block b is [n][b]. */
    template <int N, class Combine>
    __device__ const uint64_t (*gather(const uint64_t (&own)[N], Combine combine))[BLOCKS] {
        const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
        for (int n = 0; n < N; n++)
            if (lane == n) slots->of_warp[n][warp] = own[n];
        __syncthreads();
        if (warp < N) {
            const uint64_t of_block = combine.of_warp(lane < WARPS ? slots->of_warp[warp][lane] : 0);
            uint64_t *const slot = &slots->of_block[turn][warp][rank];
            if constexpr (BLOCKS == 1)
                *slot = of_block; // equal in all lanes
            else if (lane < BLOCKS)
                gpu::store_to_block(slot, lane, of_block);
        }
        meet();
        turn ^= 1;
        return slots->of_block[turn ^ 1];
    }

    /* Combines the numbers of all blocks; the lanes of each warp share the work. */
    template <int N, class Combine>
    __device__ void reduce(uint64_t (&x)[N], Combine combine) {
        constexpr int AT_ONCE = WARP / BLOCKS;
        const int lane = threadIdx.x % WARP;
        const uint64_t(*const all)[BLOCKS] = gather(x, combine);
#pragma unroll
        for (int first = 0; first < N; first += AT_ONCE) {
            const int n = first + lane / BLOCKS;
            uint64_t sum = n < N ? all[n][lane % BLOCKS] : 0;
#pragma unroll
            for (int distance = BLOCKS / 2; distance > 0; distance /= 2)
                sum = combine(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
#pragma unroll
            for (int k = 0; k < AT_ONCE && first + k < N; k++)
                x[first + k] = __shfl_sync(0xffffffffu, sum, k * BLOCKS);
        }
    }

    /* The sum over all threads before this one, in this block and earlier ones. */
    __device__ int64_t sum_before(int64_t own) {
        __shared__ int64_t of_warp[2][WARPS];
        int64_t *const before_warps = of_warp[turn];
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        int64_t sum = own;
        for (int distance = 1; distance < WARP; distance *= 2) {
            const int64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
            if (lane >= distance) sum += other;
        }
        const uint64_t warps_sum[1] = {uint64_t(__shfl_sync(0xffffffffu, sum, WARP - 1))};
        if (lane == 0) before_warps[warp] = warps_sum[0];
        const uint64_t(*const all)[BLOCKS] = gather(warps_sum, Total());
        int64_t before = Total().of_warp(lane < warp ? before_warps[lane] : 0) + sum - own;
        for (int block = 0; block < rank; block++) before += all[0][block];
        return before;
    }
};

/* For each cut i: number and sum of this block's weights in [least[i], high). */
__device__ void count_range(const Row &row, const int32_t (&least)[CUTS], int32_t high, int (&count)[CUTS],
                            uint64_t (&mass)[CUTS]) {
#pragma unroll 2
    for (int i = threadIdx.x * WIDTH; i < row.count; i += THREADS * WIDTH) {
        const int4 four = *reinterpret_cast<const int4 *>(row.weights + i);
        const int32_t weights[WIDTH] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
#pragma unroll
            for (int c = 0; c < CUTS; c++) {
                const bool in = weights[e] >= least[c] && weights[e] < high;
                count[c] += in;
                mass[c] += in ? weights[e] : 0;
            }
    }
}

/* A thread's number of weights, padding included. */
__device__ int threads_weights(const Row &row) {
    const int left = row.count - int(threadIdx.x) * WIDTH;
    return left <= 0 ? 0 : (left + THREADS * WIDTH - 1) / (THREADS * WIDTH) * WIDTH;
}

/* Divides the range that contains the threshold by CUTS + 1 repeatedly, until a single weight or value is
 * left: the smallest set of heaviest weights that reaches `count` or `mass`. The weights from `low` up
 * reach them. A warp without weights in the range adds nothing. */
template <int BLOCKS>
__device__ Cut cut(const Row &row, Exchange<BLOCKS> &exchange, int32_t low, Reach at_low, int64_t count,
                   int64_t mass) {
    int32_t high = SAMPLE_ONE + 1;
    Reach above = {0, 0};
    int inside = low ? INT32_MAX : threads_weights(row); // this thread's weights in [low, high)
    while (high - low > 1 && at_low.count - above.count > 1) {
        int32_t least[CUTS];
        int own_count[CUTS] = {};
        uint64_t own_mass[CUTS] = {}, sums[NUMBERS] = {};
#pragma unroll
        for (int c = 0; c < CUTS; c++) least[c] = low + int32_t(int64_t(high - low) * (c + 1) / (CUTS + 1));
        if (__any_sync(0xffffffffu, inside > 0)) {
            count_range(row, least, high, own_count, own_mass);
#pragma unroll
            for (int c = 0; c < CUTS; c++) {
                sums[c] = __reduce_add_sync(0xffffffffu, own_count[c]);
                sums[CUTS + c] = Total().of_warp(own_mass[c]);
            }
        }
        exchange.reduce(sums, Total());
        int32_t new_high = high;
        Reach new_above = above;
        int own_above = 0, own_low = -1;
#pragma unroll
        for (int c = CUTS - 1; c >= 0; c--) {
            if (own_low >= 0) continue; // found
            const Reach r = {above.count + int64_t(sums[c]), above.mass + int64_t(sums[CUTS + c])};
            if (r.count >= count && r.mass >= mass) {
                low = least[c];
                at_low = r;
                own_low = own_count[c];
            } else {
                new_high = least[c];
                new_above = r;
                own_above = own_count[c];
            }
        }
        inside = (own_low < 0 ? inside : own_low) - own_above;
        high = new_high;
        above = new_above;
    }
    if (at_low.count - above.count == 1) return {low, high, above, 1, at_low.mass};
    const int64_t by_count = count - above.count, by_mass = low ? (mass - above.mass + low - 1) / low : 0;
    const int64_t ties = by_count > by_mass ? by_count : by_mass;
    return {low, high, above, ties, above.mass + ties * low};
}

template <int BLOCKS>
__device__ Cut restrict_to(const SampleRule &rule, const Row &row, Exchange<BLOCKS> &exchange, Reach all) {
    Cut c = {0, 0, all, 0, all.mass};
    if (rule.top_k && rule.top_k < all.count) c = cut(row, exchange, 0, all, rule.top_k, 0);
    if (rule.top_p >= 1) return c;
    const double least = ceil(rule.top_p * (double)c.mass);
    const int64_t mass = least < 1 ? 1 : (int64_t)least;
    if (c.above.mass >= mass) return cut(row, exchange, c.high, c.above, 0, mass);
    if (c.ties > 1) { // equal weights
        c.ties = (mass - c.above.mass + c.low - 1) / c.low;
        c.mass = c.above.mass + c.ties * c.low;
    }
    return c;
}

/* The first kept id at which the running sum exceeds the target. Each thread has neighbouring ids; the one
 * that finds the target returns the id, the others -1. */
template <int BLOCKS>
__device__ int pick(const Row &row, Exchange<BLOCKS> &exchange, const Cut &c, int64_t target) {
    const int share =
        (row.count + THREADS - 1) / THREADS | 1; // odd, so that threads of a warp use different banks
    const int first = min((int)threadIdx.x * share, row.count), end = min(first + share, row.count);
    int64_t mass = 0, own_ties = 0, tie = 0;
#pragma unroll 8
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        const bool tied = weight >= c.low && weight < c.high;
        mass += weight >= c.high ? weight : 0;
        own_ties += tied;
        tie = tied ? weight : tie; // all ties have the same weight
    }
    int64_t left = c.ties - exchange.sum_before(own_ties); // ties left to keep
    left = left < 0 ? 0 : left;
    mass += tie * (left < own_ties ? left : own_ties);
    int64_t sum = exchange.sum_before(mass);
    if (target < sum || target >= sum + mass) return -1;
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        if (weight >= c.high || (weight >= c.low && left-- > 0)) sum += weight;
        if (sum > target) return row.first + i;
    }
    return -1;
}

/* A sort key: largest logit first, then lowest id. The float's bits are mapped to an ordered integer,
 * above the inverted id. */
__device__ uint64_t ranked(float logit, int id) {
    const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit); // -0 is 0
    const uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (uint32_t)~id;
}

__device__ float logit_of(uint64_t rank) {
    const uint32_t key = uint32_t(rank >> 32);
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* Neighbouring logits from `i` on; beyond the row's end they are -INFINITY. */
__device__ inline void load_logits(const Row &row, int i, float (&x)[WIDTH]) {
    if (i + WIDTH <= row.count)
        load_floats(row.logits + i, x);
    else
        for (int e = 0; e < WIDTH; e++) x[e] = i + e < row.count ? row.logits[i + e] : -INFINITY;
}

/* The rank of the largest logit; logits that cannot be sampled rank first. With `keep` stores the logits' bits
 * in the memory of the weights. */
template <int BLOCKS>
__device__ uint64_t find_best(const Row &row, Exchange<BLOCKS> &exchange, bool keep) {
    constexpr int AHEAD = 4, STEP = THREADS * WIDTH; // loads in flight
    float largest = -INFINITY;
    int id = 0;
    bool bad = false;
    for (int first = int(threadIdx.x) * WIDTH; first < row.count; first += AHEAD * STEP) {
        float x[AHEAD][WIDTH];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) load_logits(row, first + a * STEP, x[a]);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int i = first + a * STEP;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                bad |= !(x[a][e] < INFINITY);
                if (x[a][e] > largest) largest = x[a][e], id = row.first + i + e;
            }
            if (keep && i < row.count) store_floats(reinterpret_cast<float *>(row.weights) + i, x[a]);
        }
    }
    uint64_t best[1] = {Largest().of_warp(bad ? UINT64_MAX : ranked(largest, id))};
    exchange.reduce(best, Largest());
    return best[0];
}

/* Replaces the logits' bits by weights; each thread converts the ones that it stored. */
template <int BLOCKS>
__device__ int64_t weigh(const Row &row, Exchange<BLOCKS> &exchange, float largest, const SampleRule &rule) {
    uint64_t mass[1] = {0};
#pragma unroll 2
    for (int i = threadIdx.x * WIDTH; i < row.count; i += THREADS * WIDTH) {
        float x[WIDTH];
        Pack<int32_t, WIDTH> weights;
        load_floats(reinterpret_cast<float *>(row.weights) + i, x);
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            const int32_t weight = sample_weight(x[e] - largest, rule.sharpness);
            weights.e[e] = weight >= rule.least ? weight : 0;
            mass[0] += weights.e[e];
        }
        store_pack(row.weights + i, weights);
    }
    mass[0] = Total().of_warp(mass[0]);
    exchange.reduce(mass, Total());
    return mass[0];
}

/* Ids per block: a multiple of WIDTH. */
__host__ __device__ constexpr int share_of(int vocab, int blocks) {
    return (vocab + blocks * WIDTH - 1) / (blocks * WIDTH) * WIDTH;
}

struct Draw {
    SampleRule rule;
    const float *logits; // rows `width` apart
    int vocab, width;
    int32_t *spilled; // (rows, all shares), or NULL if weights are in shared memory
    const double *uniforms;
    int32_t *position, *token, *sampled;
};

/* Draws the token of row blockIdx.y. Floor: one read of the logits from L2, then about ten passes over the
 * weights in shared memory. */
template <int BLOCKS>
__device__ void draw(const Draw &d, int32_t *weights) {
    __shared__ Slots<BLOCKS> slots;
    const int rank = BLOCKS == 1 ? 0 : int(blockIdx.x), share = share_of(d.vocab, BLOCKS);
    const int first = min(rank * share, d.vocab), own_row = int(blockIdx.y);
    const Row row = {d.logits + int64_t(own_row) * d.width + first,
                     d.spilled ? d.spilled + int64_t(own_row * BLOCKS + rank) * share : weights, first,
                     min(share, d.vocab - first)};
    Exchange<BLOCKS> exchange = {&slots, rank, 0};
    exchange.meet(); // waits until all blocks have started
    wait_for_previous();
    let_next_start();
    const int position = d.position[own_row];
    const uint64_t best = find_best(row, exchange, !d.rule.greedy);
    const float largest = logit_of(best);
    const bool bad = best == UINT64_MAX || largest == -INFINITY;
    bool own = rank == 0 && threadIdx.x == 0; // whether this thread writes the token
    int chosen = bad ? -1 : (int)~(uint32_t)best;
    if (!d.rule.greedy && !bad) {
        const int64_t mass = weigh(row, exchange, largest, d.rule);
        const Cut c = restrict_to(d.rule, row, exchange, {d.vocab, mass});
        const int64_t target = (int64_t)(d.uniforms[position] * (double)c.mass);
        const int found = pick(row, exchange, c, target);
        if (found >= 0) chosen = found;
        if (target < c.mass) own = found >= 0; // otherwise the product was rounded up to the total
    }
    if (!own) return;
    d.sampled[position] = chosen;
    d.token[own_row] = max(chosen, 0);
    d.position[own_row] = position + 1;
}

/* Anatomy. Parallel: over rows; over ids, 4 a thread and turn. Launch: rows blocks of 512. Holds: 64
 * registers, the row's weights in shared memory where they fit. Occupancy: one block: its latency counts.
 * Reads: 16 bytes per load, 4 in flight, coalesced, once; then the weights in shared memory. Syncs: barriers
 * of the block, about ten rounds of sums. Fusion: with head_kernel, by its last block to finish. */
__global__ void __launch_bounds__(THREADS) draw_alone(const __grid_constant__ Draw d) {
    extern __shared__ int4 weights[];
    draw<1>(d, reinterpret_cast<int32_t *>(weights));
}

/* Anatomy. Parallel: over rows; over ids, an eighth of the row a block, 4 a thread and turn. Launch: rows
 * clusters of 8 blocks of 512. Holds: 62 registers, the share's weights in shared memory where they fit.
 * Occupancy: one cluster: its latency counts. Reads: 16 bytes per load, 4 in flight, coalesced, once; then
 * the weights in shared memory. Syncs: barriers of the cluster, about ten rounds of sums. Fusion: with
 * head_kernel, by its last blocks to finish. */
__global__ void __launch_bounds__(THREADS) draw_together(const __grid_constant__ Draw d) {
    if constexpr (gpu::HOPPER) {
        extern __shared__ int4 weights[];
        draw<CLUSTER>(d, reinterpret_cast<int32_t *>(weights));
    }
}

} // namespace

Status sample_cuda(Ctx *ctx, const Sample *s) {
    const bool together = cuda_device(ctx)->capability == 90;
    const int blocks = together ? CLUSTER : 1, share = share_of((int)s->vocab, blocks);
    const unsigned rows = (unsigned)tensor_rows(s->logits);
    const size_t bytes = (size_t)share * sizeof(int32_t), own = 8192; // own: bytes of the exchange
    const bool fits = bytes + own <= cuda_device(ctx)->shared_bytes;
    Tensor spilled = {};
    if (!fits) TRY(take(ctx, ARENA_SCRATCH, "sample.weights", I32, shape2(rows * blocks, share), &spilled));
    if (ctx->measuring) return OK;
    const Draw d = {s->rule,
                    data_of<float>(s->logits),
                    (int)s->vocab,
                    (int)tensor_width(s->logits),
                    data_of<int32_t>(spilled),
                    data_of<double>(s->uniforms),
                    data_of<int32_t>(s->position),
                    data_of<int32_t>(s->token),
                    s->sampled};
    const size_t shared = fits && !s->rule.greedy ? bytes : 0;
    if (together)
        return LAUNCH_CLUSTERS(ctx, CLUSTER, draw_together, dim3(CLUSTER, rows), THREADS, shared, d);
    return LAUNCH_EARLY(ctx, draw_alone, dim3(1, rows), THREADS, shared, d);
}
