/* One block draws: the row is small, and what takes time is one sum after another. The steps are those of cpu.c, with
 * every thread taking the same turns. The weights lie in shared memory where they fit, else in device memory. */
#include "kernels/device/cuda.cuh"
#include "kernels/sample/sample.h"
#include "kernels/sample/weight.h"

namespace {

constexpr int THREADS = 1024;

/* How many weights are at least as heavy as something, and what they weigh together. */
struct Reach {
    int64_t count, mass;

    __device__ Reach operator+(const Reach &other) const { return {count + other.count, mass + other.mass}; }
};

/* Where what is kept ends: all from `high` up, and of those from `low` up to it the first `ties` ids. They weigh
 * the same, or there is only one. */
struct Cut {
    int32_t low, high;
    Reach above; // from high up
    int64_t ties, mass;
};

struct Row {
    const float *logits;
    int32_t *weights;
    int vocab;
};

__device__ Reach sum_of_block(Reach own) {
    return {block_sum<THREADS>(own.count), block_sum<THREADS>(own.mass)};
}

__device__ Reach reach(const Row &row, int32_t least) {
    int count = 0;
    int64_t mass = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < row.vocab; i += THREADS) {
        const int32_t weight = row.weights[i];
        count += weight >= least;
        mass += weight >= least ? weight : 0;
    }
    return sum_of_block({count, mass});
}

/* Bisects for the fewest weights, heaviest first, that make up `count` and `mass`, of those from `low` up, which
 * do. */
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
__device__ Reach sum_before(Reach own) {
    __shared__ Reach of_warp[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Reach sum = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        const Reach other = {__shfl_up_sync(0xffffffffu, sum.count, distance),
                             __shfl_up_sync(0xffffffffu, sum.mass, distance)};
        if (lane >= distance) sum = sum + other;
    }
    __syncthreads(); // the last use of of_warp is over
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    for (int other = 0; other < warp; other++) sum = sum + of_warp[other];
    return {sum.count - own.count, sum.mass - own.mass};
}

/* The first kept id at which the running sum exceeds the target. Every thread has neighbouring ids; only one finds
 * the target among its own, and puts the answer into `chosen`. */
__device__ void pick(const Row &row, const Cut &c, int64_t target, int *chosen) {
    const int share = (row.vocab + THREADS - 1) / THREADS | 1; // odd: no two threads of a warp share a bank
    const int first = min((int)threadIdx.x * share, row.vocab), end = min(first + share, row.vocab);
    int64_t ties = 0;
    for (int i = first; i < end; i++) ties += row.weights[i] >= c.low && row.weights[i] < c.high;
    ties = sum_before({ties, 0}).count;
    int64_t mass = 0, rank = ties;
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        if (weight >= c.high || (weight >= c.low && rank++ < c.ties)) mass += weight;
    }
    int64_t sum = sum_before({0, mass}).mass;
    if (target < sum || target >= sum + mass) return;
    for (int i = first; i < end; i++) {
        const int32_t weight = row.weights[i];
        if (weight >= c.high || (weight >= c.low && ties++ < c.ties)) sum += weight;
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

/* The largest logit's id, or -1 where one is NaN or +inf, or all are -inf. */
__device__ int find_best(const Row &row) {
    uint64_t best = 0;
    bool bad = false;
#pragma unroll 8
    for (int i = threadIdx.x; i < row.vocab; i += THREADS) {
        const float logit = row.logits[i];
        bad |= !(logit < INFINITY);
        best = Later()(best, ranked(logit, i));
    }
    best = block_reduce<THREADS>(best, Later());
    const int id = (int)~(uint32_t)best;
    return __syncthreads_or(bad) || row.logits[id] == -INFINITY ? -1 : id;
}

/* Floor: the logits are read once from the cache of the product that made them; then about 20 rounds over the
 * weights in shared memory. */
__global__ void __launch_bounds__(THREADS)
    draw(const SampleRule rule, const float *logits, int vocab, int32_t *spilled, const double *uniforms,
         int32_t *place, int32_t *token, int32_t *told) {
    extern __shared__ int32_t shared_weights[];
    __shared__ int chosen;
    const Row row = {logits, spilled ? spilled : shared_weights, vocab};
    wait_for_previous();
    let_next_start();
    const int best = find_best(row);
    if (threadIdx.x == 0) chosen = best;
    if (!rule.greedy && best >= 0) {
        const float largest = logits[best];
        int64_t mass = 0;
#pragma unroll 8
        for (int i = threadIdx.x; i < vocab; i += THREADS) {
            const int32_t weight = sample_weight(logits[i] - largest, rule.sharpness);
            row.weights[i] = weight;
            mass += weight;
        }
        mass = block_sum<THREADS>(mass);
        const Cut c = restrict_to(rule, row, {vocab, mass});
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
    const size_t bytes = (size_t)s->vocab * sizeof(int32_t), own = 2048; // own: the reductions'
    const bool fits = bytes + own <= cuda_device(ctx)->shared_bytes;
    Tensor spilled = {};
    if (!fits) TRY(take(ctx, ARENA_SCRATCH, "sample.weights", I32, shape1(s->vocab), &spilled));
    if (ctx->measuring) return OK;
    return LAUNCH_EARLY(ctx, draw, 1, THREADS, fits && !s->rule.greedy ? bytes : 0, s->rule,
                        data_of<float>(s->logits), (int)s->vocab, data_of<int32_t>(spilled),
                        data_of<double>(s->uniforms), data_of<int32_t>(s->place), data_of<int32_t>(s->token),
                        s->told);
}
