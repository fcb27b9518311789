/* Fused attention: selects a kernel, and prepares its parameters, cache and statistics. */
#include "kernels/attention/cuda_problem.cuh"

#include "kernels/attention/cuda_rotary.cuh"
#include "kernels/cuda/words.cuh"

#include <climits>

/* Neither pass stores anything of size T x S. This file turns the contract into a Problem, appends to the
 * cache, computes the statistics of the backward pass, and selects a kernel. */

namespace attention {

Rows make_rows(const Tensor &t, int64_t head_columns) {
    const int64_t rows = t.shape.d[1], size = (int64_t)dtype_size(t.dtype);
    const bool vector =
        walks_in_packs(16, {head_columns * size, t.stride * size}, {static_cast<const void *>(t.data)});
    return {t.data, rows * t.stride, t.stride, vector};
}

bool fits_tensor_cores(const Ctx *ctx, const Problem &p) {
    return p.dtype == BF16 && p.width <= TENSOR_WIDTH &&
           cuda_device(ctx)->shared_bytes >= tensor_shared_bytes(p.width);
}

Status make_problem(const AttentionForward *a, Problem *p) {
    const Tensor &k = tensor_empty(a->cache_k) ? a->k : a->cache_k;
    const Tensor &v = tensor_empty(a->cache_v) ? a->v : a->cache_v;
    const int64_t keys = tensor_empty(a->cache_k) ? k.shape.d[1] : a->past + a->k.shape.d[1];
    const int64_t batch = a->q.shape.d[0], queries = a->q.shape.d[1], width = tensor_width(a->q) / a->heads;
    const int64_t longest = queries > keys ? queries : keys;
    // positions are ints in the kernels; the largest grid has a block per 32 rows of a head, or per query
    // when there are few
    const double blocks = (double)batch * (double)a->heads * (double)(longest / 32 + DECODE_QUERIES);
    if (longest > INT_MAX / 2 || blocks > INT_MAX)
        return fail(ERROR_USAGE,
                    "attention: batch %lld x heads %lld x length %lld is more than one launch takes; use a "
                    "smaller batch",
                    (long long)batch, (long long)a->heads, (long long)longest);
    *p = Problem{};
    p->q = make_rows(a->q, width);
    p->k = make_rows(k, width);
    p->v = make_rows(v, width);
    p->y = make_rows(a->y, width);
    p->key_lengths = data_of<int>(a->key_lengths);
    p->starts = data_of<int>(a->starts);
    p->lse = data_of<float>(a->lse);
    p->batch = (int)batch;
    p->queries = (int)queries;
    p->keys = (int)keys;
    p->heads = (int)a->heads;
    p->kv_heads = (int)a->kv_heads;
    p->group = (int)(a->heads / a->kv_heads);
    p->width = (int)width;
    p->causal = a->causal;
    p->scale = (float)a->scale;
    p->dtype = a->q.dtype;
    p->dropout = dropout_mask(a->dropout);
    return OK;
}

namespace {

constexpr int THREADS = 256;

/* Copies rows of k and v to rows [past, past + T) of the caches; blockIdx.y is 0 for k, 1 for v. */
/* Anatomy. Parallel: over packs of the new rows; blockIdx.y is k or v. Launch: grid stride, at most 32 x 2
 * blocks of 256 per multiprocessor. Holds: 30 to 34 registers, no shared memory. Occupancy: registers; 75 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: with the projection that makes k and v, in its epilogue. */
template <class T, int N>
__global__ void append_kernel(Rows k, Rows v, Rows cache_k, Rows cache_v, int64_t past, int64_t rows,
                              int64_t columns, int64_t batch) {
    const Rows from = blockIdx.y ? v : k, to = blockIdx.y ? cache_v : cache_k;
    const int64_t packs = columns / N, count = batch * rows * packs;
    for (int64_t index = blockIdx.x * (int64_t)THREADS + threadIdx.x; index < count;
         index += (int64_t)gridDim.x * THREADS) {
        const int64_t column = index % packs * N, i = index / packs % rows, b = index / packs / rows;
        const T *source = static_cast<const T *>(from.data) + b * from.batch + i * from.row + column;
        T *target = static_cast<T *>(to.data) + b * to.batch + (past + i) * to.row + column;
        store_pack<N>(target, load_pack<N>(source));
    }
}

Status append_to_cache(Ctx *ctx, const AttentionForward *a) {
    const int64_t batch = a->k.shape.d[0], rows = a->k.shape.d[1], columns = tensor_width(a->k);
    const Rows k = make_rows(a->k, columns), v = make_rows(a->v, columns);
    const Rows cache_k = make_rows(a->cache_k, columns), cache_v = make_rows(a->cache_v, columns);
    const bool packed = k.vector && v.vector && cache_k.vector && cache_v.vector;
    DISPATCH_FLOAT(a->k.dtype, T, DISPATCH_PACK(packed, T, N, {
                       const dim3 grid(grid_stride_blocks(ctx, batch * rows * columns / N, THREADS), 2);
                       return LAUNCH(ctx, (append_kernel<T, N>), grid, THREADS, 0, k, v, cache_k, cache_v,
                                     a->past, rows, columns, batch);
                   }));
}

constexpr int ROW_LANES = 8,
              ROW_STEP = THREADS / ROW_LANES; // for statistics_kernel: threads per row, rows at once
constexpr int ROW_STEPS = 4;                  // rows per thread

/* lse in base 2 and delta = dy . y for every query and head; a thread reads N columns at a time. A block has
 * ROW_STEPS * ROW_STEP rows of D numbers in memory order, with a query's heads side by side. Floor: read y
 * and dy, 2 * B * T * heads * D * sizeof(T) bytes. */
/* Anatomy. Parallel: over a query's heads, 8 threads each and 4 rows per thread. Launch: rows / 128 blocks of
 * 256. Holds: 100 to 128 registers, no shared memory, some spill. Occupancy: registers; 25% of the warps.
 * Reads: 16 bytes per load, coalesced, 8 loads in flight; one element where rows are not aligned. Syncs: warp
 * shuffles only. Fusion: with the backward kernel that owns queries. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS, 2)
    statistics_kernel(const __grid_constant__ Problem p, int64_t rows) {
    const int lane = int(threadIdx.x) % ROW_LANES;
    const int64_t first = blockIdx.x * int64_t(ROW_STEPS * ROW_STEP) + int(threadIdx.x) / ROW_LANES;
    const int64_t row = min(first, rows - 1), query = row / p.heads; // counted over all batch rows
    const int first_head = int(row % p.heads), first_i = int(query % p.queries),
              first_b = int(query / p.queries);
    const T *y[ROW_STEPS], *dy[ROW_STEPS];
    int64_t to[ROW_STEPS];
#pragma unroll
    for (int s = 0; s < ROW_STEPS; s++) {
        const int rest = first_head + (first + s * ROW_STEP < rows ? s * ROW_STEP : 0);
        const int at = first_i + rest / p.heads, head = rest % p.heads;
        const int i = at % p.queries, b = first_b + at / p.queries;
        y[s] = head_rows<T>(p, p.y, b, head) + i * p.y.row;
        dy[s] = head_rows<T>(p, p.dy, b, head) + i * p.dy.row;
        to[s] = (int64_t(b) * p.heads + head) * p.queries + i;
    }
    wait_for_previous();
    let_next_start();
    float delta[ROW_STEPS] = {};
    for (int column = lane * N; column < p.width; column += ROW_LANES * N) {
        Words left[ROW_STEPS], right[ROW_STEPS];
#pragma unroll
        for (int s = 0; s < ROW_STEPS; s++) {
            left[s] = load_words_of<T, N>(y[s] + column);
            right[s] = load_words_of<T, N>(dy[s] + column);
        }
#pragma unroll
        for (int s = 0; s < ROW_STEPS; s++) {
            float a[N], b[N];
            unpack_of<T, N>(left[s], a);
            unpack_of<T, N>(right[s], b);
#pragma unroll
            for (int e = 0; e < N; e++) delta[s] = fmaf(a[e], b[e], delta[s]);
        }
    }
#pragma unroll
    for (int s = 0; s < ROW_STEPS; s++) {
#pragma unroll
        for (int distance = ROW_LANES / 2; distance > 0; distance /= 2)
            delta[s] += __shfl_xor_sync(0xffffffffu, delta[s], distance);
        if (first + s * ROW_STEP >= rows || lane != 0) continue;
        const float lse = p.lse[to[s]];
        // a query that saw no key: 2^(score - inf) = 0 makes all its probabilities 0
        p.statistics[to[s]] = make_float2(lse == -INFINITY ? INFINITY : lse * LOG2_E, delta[s]);
    }
}

Status statistics(Ctx *ctx, const Problem &p) {
    const int64_t rows = int64_t(p.batch) * p.queries * p.heads;
    DISPATCH_FLOAT(p.dtype, T, DISPATCH_PACK(p.y.vector && p.dy.vector, T, N, {
                       return LAUNCH_EARLY(ctx, (statistics_kernel<T, N>),
                                           divide_up(rows, ROW_STEPS * ROW_STEP), THREADS, 0, p, rows);
                   }));
}

/* Of the kernels, only decode reads pasts. With FUSE_INVARIANT a query's keys are added in one order, which
 * the Hopper kernel has, too, but for rows of several documents. */
bool suits_decode(const Ctx *ctx, const Problem &p, bool pasts) {
    constexpr int MANY = 64; // queries for which the Hopper kernel is faster
    const bool invariant = ctx->fuses & FUSE_INVARIANT;
    if (p.width > DECODE_WIDTH || p.dropout.on()) return false;
    if (!invariant) return (p.queries <= DECODE_QUERIES || pasts) && !p.starts;
    return pasts || p.starts || p.queries < MANY || !fits_hopper_forward(ctx, p);
}

/* Selects a kernel. The Hopper kernels have no dropout. */
Status forward(Ctx *ctx, const Problem *p) {
    if (!p->dropout.on() && fits_hopper_forward(ctx, *p)) return forward_hopper(ctx, p);
    if (fits_tensor_cores(ctx, *p)) return forward_tensor(ctx, p);
    return forward_exact(ctx, p);
}

Status backward(Ctx *ctx, const Problem *p) {
    if (p->dq_sums) return backward_hopper(ctx, p);
    return fits_tensor_cores(ctx, *p) ? backward_tensor(ctx, p) : backward_exact(ctx, p);
}

} // namespace
} // namespace attention

static Status attention_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const AttentionForward *a = static_cast<const AttentionForward *>(contract);
    attention::Problem p;
    TRY(attention::make_problem(a, &p));
    const bool decode = attention::suits_decode(ctx, p, !tensor_empty(a->pasts));
    if (!tensor_empty(a->frequencies))
        PRIMITIVE (ctx, "rotary positions", ELEMENTWISE) {
            const int *past = decode ? data_of<int>(a->past_on_device) : nullptr;
            TRY(rotate_heads(ctx, a, a->q, a->k, past, false));
        }
    if (decode) return attention::forward_decode(ctx, &p, a);
    if (!tensor_empty(a->cache_k))
        PRIMITIVE (ctx, "append to cache", MEMORY) TRY(attention::append_to_cache(ctx, a));
    PRIMITIVE (ctx, "flash forward", ATTENTION, torch_none(), &a->lse) TRY(attention::forward(ctx, &p));
    return OK;
}
SLOT(ATTENTION, FORWARD, CUDA, FUSED, F32, attention_forward_cuda_fused);
SLOT(ATTENTION, FORWARD, CUDA, FUSED, BF16, attention_forward_cuda_fused);

static Status attention_backward_cuda_fused(Ctx *ctx, const void *contract) {
    const AttentionBackward *a = static_cast<const AttentionBackward *>(contract);
    attention::Problem p;
    TRY(attention::make_problem(a->forward, &p));
    p.dy = attention::make_rows(a->dy, p.width);
    p.dq = attention::make_rows(a->dq, p.width);
    p.dk = attention::make_rows(a->dk, p.width);
    p.dv = attention::make_rows(a->dv, p.width);
    Tensor statistics;
    TRY(take(ctx, ARENA_SCRATCH, "attention.statistics", F32, shape4(p.batch, p.heads, p.queries, 2),
             &statistics));
    p.statistics = static_cast<float2 *>(statistics.data);
    const bool hopper = !p.dropout.on() && attention::fits_hopper_backward(ctx, p);
    const bool rotary = !tensor_empty(a->forward->frequencies);
    if (hopper) TRY(attention::take_hopper_backward(ctx, &p));
    if (hopper && rotary) {
        Tensor angles; // (T, D)
        TRY(take(ctx, ARENA_SCRATCH, "attention.angles", F32, shape2(p.queries, p.width), &angles));
        p.angles = static_cast<const float2 *>(angles.data);
        PRIMITIVE (ctx, "rotary angles", ELEMENTWISE) TRY(rotary_angles(ctx, a->forward, angles));
    }
    PRIMITIVE (ctx, "delta", ATTENTION) TRY(attention::statistics(ctx, p));
    PRIMITIVE (ctx, hopper && rotary ? "flash backward, rotary gradient" : "flash backward", ATTENTION)
        TRY(attention::backward(ctx, &p));
    if (rotary && !hopper)
        PRIMITIVE (ctx, "rotary gradient", ELEMENTWISE)
            TRY(rotate_heads(ctx, a->forward, a->dq, a->dk, nullptr, true));
    return OK;
}
SLOT(ATTENTION, BACKWARD, CUDA, FUSED, F32, attention_backward_cuda_fused);
SLOT(ATTENTION, BACKWARD, CUDA, FUSED, BF16, attention_backward_cuda_fused);
