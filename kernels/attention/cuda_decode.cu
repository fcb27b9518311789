/* Attention of a few queries to many keys, as decoding needs it: bound by reading k and v once. A block takes
 * one query of one head; LANES threads share a key, 8 columns each, and the block's groups of LANES go
 * through the keys side by side, UNROLL keys of each on the way at a time, every group with its own online
 * softmax. In the end the groups' results are merged in fixed order. New rows of k and v are read where the
 * projection left them, and go to the cache on the way: nobody reads them there in this launch. */
#include "kernels/attention/cuda_problem.cuh"

namespace attention {
namespace {

constexpr int THREADS = 512, WARPS = THREADS / 32, UNROLL = 4, COLUMNS = 8;

/* Rows that are not in the cache yet, in which a Problem's k and v then lie; count = 0 without a cache. */
struct Fresh {
    Rows k, v;
    int count;
    const int *past; // device memory: rows in the cache; NULL: keys - count
};

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

/* Both partials' keys together. */
__device__ inline void merge(Partial &partial, float maximum, float sum, const float (&y)[COLUMNS]) {
    const float larger = fmaxf(partial.maximum, maximum), base = larger == -INFINITY ? 0.0f : larger;
    const float own = exp2f(partial.maximum - base), other = exp2f(maximum - base);
    partial.maximum = larger;
    partial.sum = partial.sum * own + sum * other;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) partial.y[i] = partial.y[i] * own + y[i] * other;
}

/* The groups of a warp, each lane with those that have its columns. */
template <int LANES>
__device__ inline void merge_warp(Partial &partial) {
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2) {
        float y[COLUMNS];
        const float maximum = __shfl_xor_sync(0xffffffffu, partial.maximum, distance);
        const float sum = __shfl_xor_sync(0xffffffffu, partial.sum, distance);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) y[i] = __shfl_xor_sync(0xffffffffu, partial.y[i], distance);
        merge(partial, maximum, sum, y);
    }
}

/* The new rows of one key/value head to the cache. */
template <class T>
__device__ inline void append(const Problem &p, const Fresh &fresh, const Place &place, int past) {
    const int head = place.head / p.group;
    for (int i = int(threadIdx.x); i < fresh.count * p.width; i += THREADS) {
        const int64_t row = i / p.width;
        const int column = i % p.width;
        head_rows<T>(p, p.k, place.b, head)[(past + row) * p.k.row + column] =
            head_rows<T>(p, fresh.k, place.b, head)[row * fresh.k.row + column];
        head_rows<T>(p, p.v, place.b, head)[(past + row) * p.v.row + column] =
            head_rows<T>(p, fresh.v, place.b, head)[row * fresh.v.row + column];
    }
}

/* Floor: 2 * keys * kv_heads * D * sizeof(T) bytes. */
template <class T, int LANES>
__global__ void __launch_bounds__(THREADS)
    decode_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh) {
    constexpr int GROUPS = THREADS / LANES;
    __shared__ float maxima[WARPS], sums[WARPS];
    __shared__ alignas(16) float ys[WARPS][LANES * COLUMNS];

    const Place place = block_place(p.queries, p.heads);
    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int column = lane * COLUMNS, count = p.width - column, kv_head = place.head / p.group;
    wait_for_previous();
    let_next_start();
    const int past = fresh.past ? *fresh.past : p.keys - fresh.count, keys = past + fresh.count;
    const int length = p.key_lengths ? max(0, min(p.key_lengths[place.b], keys)) : keys;
    const int seen = p.causal ? max(0, min(length, place.tile + keys - p.queries + 1)) : length;
    const T *const k = head_rows<T>(p, p.k, place.b, kv_head) + column;
    const T *const v = head_rows<T>(p, p.v, place.b, kv_head) + column;
    const T *const new_k = head_rows<T>(p, fresh.k, place.b, kv_head) + column;
    const T *const new_v = head_rows<T>(p, fresh.v, place.b, kv_head) + column;

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
            const int64_t key = first + u * GROUPS, row = key - past;
            const T *const from_k = row < 0 ? k + key * p.k.row : new_k + row * fresh.k.row;
            const T *const from_v = row < 0 ? v + key * p.v.row : new_v + row * fresh.v.row;
            load_columns<COLUMNS>(from_k, key < seen ? count : 0, p.k.vector, k_rows[u]);
            load_columns<COLUMNS>(from_v, key < seen ? count : 0, p.v.vector, v_rows[u]);
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
    if (place.tile == 0 && place.head % p.group == 0) append<T>(p, fresh, place, past);

    merge_warp<LANES>(partial);
    const int warp = int(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) maxima[warp] = partial.maximum, sums[warp] = partial.sum;
    if (int(threadIdx.x) % 32 < LANES) store_floats<COLUMNS>(&ys[warp][column], partial.y);
    __syncthreads();
    float maximum = -INFINITY, sum = 0.0f, y = 0.0f;
#pragma unroll
    for (int other = 0; other < WARPS; other++) maximum = fmaxf(maximum, maxima[other]);
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    const int own = int(threadIdx.x);
    if (own >= p.width) return;
#pragma unroll
    for (int other = 0; other < WARPS; other++) {
        const float weight = exp2f(maxima[other] - base);
        sum = fmaf(weight, sums[other], sum);
        y = fmaf(weight, ys[other][own], y);
    }
    T *const to = head_rows<T>(p, p.y, place.b, place.head) + place.tile * p.y.row;
    to[own] = from_float<T>(sum == 0.0f ? 0.0f : y / sum);
    if (p.lse && own == 0)
        p.lse[(int64_t(place.b) * p.heads + place.head) * p.queries + place.tile] =
            sum == 0.0f ? -INFINITY : (maximum + log2f(sum)) * LN_2;
}

template <class T, int LANES>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh) {
    const int64_t blocks = int64_t(p.queries) * p.heads * p.batch;
    return LAUNCH_EARLY(ctx, (decode_kernel<T, LANES>), blocks, THREADS, 0, p, fresh);
}

} // namespace

Status forward_decode(Ctx *ctx, const Problem *problem, const AttentionForward *a) {
    Problem p = *problem;
    Fresh fresh = {p.k, p.v, 0, nullptr};
    if (!tensor_empty(a->cache_k)) {
        fresh = {make_rows(a->k, p.width), make_rows(a->v, p.width), int(a->k.shape.d[1]),
                 data_of<int>(a->past_on_device)};
        p.k.vector = p.k.vector && fresh.k.vector;
        p.v.vector = p.v.vector && fresh.v.vector;
    }
    DISPATCH_FLOAT(p.dtype, T, {
        if (p.width <= 64) return launch<T, 8>(ctx, p, fresh);
        if (p.width <= 128) return launch<T, 16>(ctx, p, fresh);
        return launch<T, 32>(ctx, p, fresh);
    });
}

} // namespace attention
