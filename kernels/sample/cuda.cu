/* One block draws: the row is small, and what takes time is one sum after another. The steps are those of
 * cpu.c, with every thread taking the same turns. The weights lie in shared memory where they fit, else in
 * device memory. */
#include "kernels/device/cuda.cuh"
#include "kernels/sample/sample.h"
#include "kernels/sample/weight.h"

namespace {

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int WIDTH = 4; // neighbours that a thread takes at once: 16 bytes

/* How many weights are at least as heavy as something, and what they weigh together. */
struct Reach {
    int64_t count, mass;
};

/* Where what is kept ends: all from `high` up, and of those from `low` up to it the first `ties` ids. They
 * weigh the same, or there is only one. */
struct Cut {
    int32_t low, high;
    Reach above; // from high up
    int64_t ties, mass;
};

/* The weights go on up to a whole number of WIDTH, with zeros. */
struct Row {
    const float *logits;
    int32_t *weights;
    int vocab;
};

__device__ Reach sum_of_warp(Reach own) {
    return {warp_sum((int)own.count), warp_sum(own.mass)};
}

/* The last stage is a warp's too: as many sums as there are warps, one after another, would take longer than
 * the row. */
__device__ Reach sum_of_block(Reach own) {
    static_assert(WARPS == 32, "a lane for each warp");
    __shared__ Reach of_warp[WARPS];
    own = sum_of_warp(own);
    __syncthreads(); // the last use of of_warp is over
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    return sum_of_warp(of_warp[threadIdx.x % 32]);
}

__device__ Reach reach(const Row &row, int32_t least) {
    int count = 0;
    int64_t mass = 0;
#pragma unroll 4
    for (int i = threadIdx.x * WIDTH; i < row.vocab; i += THREADS * WIDTH) {
        const int4 four = *reinterpret_cast<const int4 *>(row.weights + i);
        const int32_t weights[WIDTH] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            count += weights[e] >= least;
            mass += weights[e] >= least ? weights[e] : 0;
        }
    }
    return sum_of_block({count, mass});
}

/* Bisects for the fewest weights, heaviest first, that make up `count` and `mass`, of those from `low` up,
 * which do. */
__device__ Cut cut(const Row &row, int32_t low, Reach at_low, int64_t count, int64_t mass) {
    int32_t high = SAMPLE_ONE + 1;
    Reach above = {0, 0};
    while (high - low > 1 && at_low.count - above.count > 1) {
        const int32_t middle = low + (high - low) / 2;
        const Reach r = reach(row, middle);
        if (r.count >= count && r.mass >= mass) {
            low = middle;
            at_low = r;
        } else {
            high = middle;
            above = r;
        }
    }
    if (at_low.count - above.count == 1) return {low, high, above, 1, at_low.mass};
    const int64_t by_count = count - above.count, by_mass = low ? (mass - above.mass + low - 1) / low : 0;
    const int64_t ties = by_count > by_mass ? by_count : by_mass;
    return {low, high, above, ties, above.mass + ties * low};
}

__device__ Cut restrict_to(const SampleRule &rule, const Row &row, Reach all) {
    Cut c = {0, 0, all, 0, all.mass};
    if (rule.top_k && rule.top_k < row.vocab) c = cut(row, 0, all, rule.top_k, 0);
    if (rule.top_p >= 1) return c;
    const double least = ceil(rule.top_p * (double)c.mass);
    const int64_t mass = least < 1 ? 1 : (int64_t)least;
    if (c.above.mass >= mass) return cut(row, c.high, c.above, 0, mass);
    if (c.ties > 1) { // of equals
        c.ties = (mass - c.above.mass + c.low - 1) / c.low;
        c.mass = c.above.mass + c.ties * c.low;
    }
    return c;
}

/* What the threads before this one hold together. */
__device__ int64_t sum_before(int64_t own) {
    __shared__ int64_t of_warp[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t sum = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
    __syncthreads(); // the last use of of_warp is over
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    return sum - own + warp_sum(lane < warp ? of_warp[lane] : 0);
}

/* The first kept id at which the running sum exceeds the target. Every thread has neighbouring ids; only one
 * finds the target among its own, and puts the answer into `chosen`. */
__device__ void pick(const Row &row, const Cut &c, int64_t target, int *chosen) {
    const int share = (row.vocab + THREADS - 1) / THREADS | 1; // odd: no two threads of a warp share a bank
    const int first = min((int)threadIdx.x * share, row.vocab), end = min(first + share, row.vocab);
    int64_t mass = 0, own_ties = 0, tie = 0;
#pragma unroll 8
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        const bool tied = weight >= c.low && weight < c.high;
        mass += weight >= c.high ? weight : 0;
        own_ties += tied;
        tie = tied ? weight : tie; // they weigh the same
    }
    int64_t left = c.ties - sum_before(own_ties); // ties that may still be kept
    left = left < 0 ? 0 : left;
    mass += tie * (left < own_ties ? left : own_ties);
    int64_t sum = sum_before(mass);
    if (target < sum || target >= sum + mass) return;
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        if (weight >= c.high || (weight >= c.low && left-- > 0)) sum += weight;
        if (sum <= target) continue;
        *chosen = i;
        return;
    }
}

/* Largest first, then the lowest id: keys that compare as the floats do, above the inverted id. */
__device__ uint64_t ranked(float logit, int id) {
    const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit); // -0 is 0
    const uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (uint32_t)~id;
}

struct Later {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

/* The largest logit's id, or -1 where one is NaN or +inf, or all are -inf. With `keep` the logits' bits stay
 * where the weights will be. */
__device__ int find_best(const Row &row, bool keep) {
    uint64_t best = 0;
    bool bad = false;
#pragma unroll 4
    for (int i = threadIdx.x * WIDTH; i < row.vocab; i += THREADS * WIDTH) {
        float x[WIDTH];
        if (i + WIDTH <= row.vocab)
            load_floats(row.logits + i, x);
        else
            for (int e = 0; e < WIDTH; e++) x[e] = i + e < row.vocab ? row.logits[i + e] : -INFINITY;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            bad |= !(x[e] < INFINITY);
            best = Later()(best, ranked(x[e], i + e));
        }
        if (keep) store_floats(reinterpret_cast<float *>(row.weights) + i, x);
    }
    best = block_reduce<THREADS>(best, Later());
    const int id = (int)~(uint32_t)best;
    return __syncthreads_or(bad) || row.logits[id] == -INFINITY ? -1 : id;
}

/* The weights in the place of the logits' bits; every thread has those that it put there. */
__device__ Reach weigh(const Row &row, float largest, float sharpness) {
    int64_t mass = 0;
#pragma unroll 2
    for (int i = threadIdx.x * WIDTH; i < row.vocab; i += THREADS * WIDTH) {
        float x[WIDTH];
        Pack<int32_t, WIDTH> weights;
        load_floats(reinterpret_cast<float *>(row.weights) + i, x);
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            weights.e[e] = sample_weight(x[e] - largest, sharpness);
            mass += weights.e[e];
        }
        store_pack(row.weights + i, weights);
    }
    return {row.vocab, sum_of_block({0, mass}).mass};
}

/* Floor: the logits are read once from the cache of the product that made them; then about 20 rounds over the
 * weights in shared memory. */
__global__ void __launch_bounds__(THREADS)
    draw(const SampleRule rule, const float *logits, int vocab, int32_t *spilled, const double *uniforms,
         int32_t *place, int32_t *token, int32_t *told) {
    extern __shared__ int4 shared_weights[];
    __shared__ int chosen;
    const Row row = {logits, spilled ? spilled : reinterpret_cast<int32_t *>(shared_weights), vocab};
    wait_for_previous();
    let_next_start();
    const int best = find_best(row, !rule.greedy);
    if (threadIdx.x == 0) chosen = best;
    if (!rule.greedy && best >= 0) {
        const Reach all = weigh(row, logits[best], rule.sharpness);
        const Cut c = restrict_to(rule, row, all);
        pick(row, c, (int64_t)(uniforms[*place] * (double)c.mass), &chosen);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    told[*place] = chosen;
    *token = max(chosen, 0);
    *place += 1;
}

} // namespace

Status sample_cuda(Ctx *ctx, const Sample *s) {
    const int64_t room = divide_up(s->vocab, WIDTH) * WIDTH;
    const size_t bytes = (size_t)room * sizeof(int32_t), own = 2048; // own: the reductions'
    const bool fits = bytes + own <= cuda_device(ctx)->shared_bytes;
    Tensor spilled = {};
    if (!fits) TRY(take(ctx, ARENA_SCRATCH, "sample.weights", I32, shape1(room), &spilled));
    if (ctx->measuring) return OK;
    return LAUNCH_EARLY(ctx, draw, 1, THREADS, fits && !s->rule.greedy ? bytes : 0, s->rule,
                        data_of<float>(s->logits), (int)s->vocab, data_of<int32_t>(spilled),
                        data_of<double>(s->uniforms), data_of<int32_t>(s->place), data_of<int32_t>(s->token),
                        s->told);
}
