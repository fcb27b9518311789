/* Attention of a few queries to many keys, as decoding needs it: bound by reading k and v once. A block takes
 * one query of one head; LANES threads share a key, 8 columns each, and the block's groups of LANES go
 * through the keys side by side, UNROLL keys of each on the way at a time, every group with its own online
 * softmax. In the end the groups' results are merged in fixed order. */
#include "kernels/attention/cuda_problem.cuh"

namespace attention {
namespace {

constexpr int THREADS = 256, UNROLL = 4, COLUMNS = 8;

/* What one group has seen: y is not yet divided by `sum`. */
struct Partial {
    float maximum, sum, y[COLUMNS];
};

/* Adds UNROLL keys with scores `s` (base 2; -inf: not seen) and values `v`. */
__device__ inline void add_keys(Partial &partial, const float (&s)[UNROLL],
                                const float (&v)[UNROLL][COLUMNS]) {
    float maximum = partial.maximum;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) maximum = fmaxf(maximum, s[u]);
    const float base = maximum == -INFINITY ? 0.0f : maximum; // nothing seen yet: every exponential is 0
    const float correction = exp2f(partial.maximum - base);
    partial.maximum = maximum;
    partial.sum *= correction;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) partial.y[i] *= correction;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const float x = exp2f(s[u] - base);
        partial.sum += x;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) partial.y[i] = fmaf(x, v[u][i], partial.y[i]);
    }
}

template <class T, int LANES>
__global__ void __launch_bounds__(THREADS) decode_kernel(const __grid_constant__ Problem p) {
    constexpr int GROUPS = THREADS / LANES;
    extern __shared__ float4 shared_memory[];
    float *const maxima = reinterpret_cast<float *>(shared_memory), *const sums = maxima + GROUPS;
    float *const ys = sums + GROUPS; // (GROUPS, LANES * COLUMNS)

    const Place place = block_place(p.queries, p.heads);
    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int column = lane * COLUMNS, count = p.width - column;
    const int seen = keys_seen(p, key_length(p, place.b), place.tile);
    const T *const k = head_rows<T>(p, p.k, place.b, place.head / p.group) + column;
    const T *const v = head_rows<T>(p, p.v, place.b, place.head / p.group) + column;

    float q[COLUMNS];
    load_columns<COLUMNS>(head_rows<T>(p, p.q, place.b, place.head) + place.tile * p.q.row + column, count,
                          p.q.vector, q);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) q[i] *= p.scale * LOG2_E;

    Partial partial = {-INFINITY, 0.0f, {}};
#pragma unroll 1
    for (int first = group; first - group < seen; first += GROUPS * UNROLL) {
        float k_rows[UNROLL][COLUMNS], v_rows[UNROLL][COLUMNS], s[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t key = first + u * GROUPS;
            load_columns<COLUMNS>(k + key * p.k.row, key < seen ? count : 0, p.k.vector, k_rows[u]);
            load_columns<COLUMNS>(v + key * p.v.row, key < seen ? count : 0, p.v.vector, v_rows[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            s[u] = 0.0f;
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) s[u] = fmaf(q[i], k_rows[u][i], s[u]);
#pragma unroll
            for (int distance = LANES / 2; distance > 0; distance /= 2)
                s[u] += __shfl_xor_sync(0xffffffffu, s[u], distance);
            if (first + u * GROUPS >= seen) s[u] = -INFINITY;
        }
        add_keys(partial, s, v_rows);
    }

    if (lane == 0) maxima[group] = partial.maximum, sums[group] = partial.sum;
    store_floats<COLUMNS>(ys + group * LANES * COLUMNS + column, partial.y);
    __syncthreads();
    float maximum = -INFINITY, sum = 0.0f, y = 0.0f;
    for (int other = 0; other < GROUPS; other++) maximum = fmaxf(maximum, maxima[other]);
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    const int own = int(threadIdx.x);
    if (own >= p.width) return;
#pragma unroll 8
    for (int other = 0; other < GROUPS; other++) {
        const float weight = exp2f(maxima[other] - base);
        sum = fmaf(weight, sums[other], sum);
        y = fmaf(weight, ys[other * LANES * COLUMNS + own], y);
    }
    T *const to = head_rows<T>(p, p.y, place.b, place.head) + place.tile * p.y.row;
    to[own] = from_float<T>(sum == 0.0f ? 0.0f : y / sum);
    if (p.lse && own == 0)
        p.lse[(int64_t(place.b) * p.heads + place.head) * p.queries + place.tile] =
            sum == 0.0f ? -INFINITY : (maximum + log2f(sum)) * LN_2;
}

template <class T, int LANES>
Status launch(Ctx *ctx, const Problem &p) {
    const int64_t blocks = int64_t(p.queries) * p.heads * p.batch;
    const size_t shared = sizeof(float) * (2 * THREADS / LANES + THREADS * COLUMNS);
    return LAUNCH(ctx, (decode_kernel<T, LANES>), blocks, THREADS, shared, p);
}

} // namespace

Status forward_decode(Ctx *ctx, const Problem *p) {
    DISPATCH_FLOAT(p->dtype, T, {
        if (p->width <= 64) return launch<T, 8>(ctx, *p);
        if (p->width <= 128) return launch<T, 16>(ctx, *p);
        return launch<T, 32>(ctx, *p);
    });
}

} // namespace attention
