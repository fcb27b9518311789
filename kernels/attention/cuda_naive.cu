/* attention as eager frameworks run it: each step of the formula passes over stored scores. */
#include "kernels/attention/attention.h"

#include "kernels/attention/cuda_heads.cuh"
#include "kernels/attention/cuda_rotary.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/dropout/cuda_mask.cuh"
#include "kernels/gemm/gemm.h"

#include <math_constants.h>

/* Scores are (B, heads, T, S) in the computation's dtype. Their rows are padded to a multiple of 16 bytes, as
 * cuBLAS's fast kernels require; padded keys and values are 0, and no query sees them. The visible keys of a
 * query are a prefix of its row, so steps after the mask read only that prefix. In units of B*heads*T*S
 * elements, causal with T = S (half of the keys are visible), a forward pass makes 7 passes (product 1, scale
 * 1, mask 0.5, max 0.5, exp 1.5, sum 0.5, divide 1, value product 1) and a backward pass 8; PyTorch eager in
 * fp32 makes 8 and 11. */

namespace {

struct Sizes {
    int64_t batch, queries, keys, heads, kv_heads, size; // B, T, S, heads, kv_heads, D
    int64_t rows;                                        // B * heads * T
    int64_t room;                                        // keys including padding
};

Sizes sizes_of(const AttentionForward *a) {
    int64_t past = tensor_empty(a->cache_k) ? 0 : a->past;
    int64_t batch = a->q.shape.d[0], queries = a->q.shape.d[1], keys = past + a->k.shape.d[1];
    int64_t size = a->q.shape.d[2] / a->heads, rows = batch * a->heads * queries;
    const int64_t aligned = 16 / (int64_t)dtype_size(a->q.dtype);
    int64_t room =
        tensor_empty(a->probabilities) ? divide_up(keys, aligned) * aligned : a->probabilities.stride;
    return {batch, queries, keys, a->heads, a->kv_heads, size, rows, room};
}

/* The visible keys of a row of scores: the first seen(row). */
struct Mask {
    const int32_t *key_lengths; // (B), or NULL
    const int32_t *starts;      // (B, T), or NULL: a document's first key
    const int32_t *pasts;       // (B), or NULL: keys before a batch row's first query
    int64_t rows_per_batch, queries, keys, room;
    bool causal;

    __device__ int64_t seen(int64_t row) const {
        int64_t seen = key_lengths ? min(keys, (int64_t)key_lengths[row / rows_per_batch]) : keys;
        if (causal)
            seen = min(seen, row % queries + 1 + (pasts ? pasts[row / rows_per_batch] : keys - queries));
        return max(seen, (int64_t)0);
    }
    /* The first visible key. Earlier masked keys have probability 0, like keys whose probability
     * underflows. */
    __device__ int64_t first(int64_t row) const {
        return starts ? starts[row / rows_per_batch * queries + row % queries] : 0;
    }
};

Mask mask_of(const AttentionForward *a, const Sizes &s) {
    return {data_of<int32_t>(a->key_lengths),
            data_of<int32_t>(a->starts),
            data_of<int32_t>(a->pasts),
            s.heads * s.queries,
            s.queries,
            s.keys,
            s.room,
            a->causal};
}

/* ---- rows of scores: one warp each ---- */

#define FOR_EACH_ROW(row, rows)                                                                              \
    for (int64_t row = thread_index() / 32; row < (rows); row += thread_count() / 32)

/* Calls each(column, values) for columns [from, end) of the rows of K tensors, N neighbours at a time. Masked
 * keys are not read; their values are 0. A lane reads several packs before it processes the first: the
 * callback may write in place, and the compiler cannot move a read above a write. */
template <int N, int K, class T, class F>
__device__ inline void walk(const T *const (&rows)[K], int64_t from, int64_t seen, int64_t end, F each) {
    constexpr int AHEAD = N == 1 ? 8 : 16 / N;
    for (int64_t first = from / N * N; first < end; first += 32 * N * AHEAD) {
        const int64_t j = first + threadIdx.x % 32 * N;
        float value[AHEAD][K][N] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int k = 0; k < K; k++)
                if (j + i * 32 * N < seen) load_floats(rows[k] + j + i * 32 * N, value[i][k]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (j + i * 32 * N < end) each(j + i * 32 * N, value[i]);
    }
}

/* Scale of scores before the mask, and of gradients after it: x *= factor for visible keys. */
/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 30 to 39 registers, no shared memory. Occupancy: registers; 75 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * none. Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void scale(int64_t rows, Mask mask, float factor, T *x) {
    FOR_EACH_ROW(row, rows) {
        T *at = x + row * mask.room;
        int64_t seen = mask.seen(row);
        walk<N, 1, T>({at}, 0, seen, seen, [=](int64_t j, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) value[0][e] *= factor;
            store_floats(at + j, value[0]);
        });
    }
}

/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 32 to 63 registers, no shared memory. Occupancy: registers; 50 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * none. Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void hide(int64_t rows, Mask mask, T *scores) {
    FOR_EACH_ROW(row, rows) {
        T *at = scores + row * mask.room;
        int64_t first = mask.first(row), seen = mask.seen(row);
        if (first == 0 && seen == mask.keys) continue;
        walk<N, 1, T>({at}, first > 0 ? 0 : seen, seen, mask.room, [=](int64_t j, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++)
                value[0][e] = j + e >= first && j + e < seen ? value[0][e] : -CUDART_INF_F;
            store_floats(at + j, value[0]);
        });
    }
}

/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 31 to 40 registers, no shared memory. Occupancy: registers; 75 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * warp shuffles only. Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void row_max(const T *scores, int64_t rows, Mask mask, float *maxima) {
    FOR_EACH_ROW(row, rows) {
        int64_t seen = mask.seen(row);
        float most = -CUDART_INF_F;
        walk<N, 1, T>({scores + row * mask.room}, 0, seen, seen, [&](int64_t j, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) most = fmaxf(most, j + e < seen ? value[0][e] : -CUDART_INF_F);
        });
        most = warp_max(most);
        if (threadIdx.x % 32 == 0) maxima[row] = most;
    }
}

/* x = exp(x - max), and 0 for masked keys. */
/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 46 to 48 registers, no shared memory. Occupancy: registers; 62% of the warps. Reads:
 * 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs: none.
 * Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void exponentials(const float *maxima, int64_t rows, Mask mask, T *x) {
    FOR_EACH_ROW(row, rows) {
        T *at = x + row * mask.room;
        int64_t seen = mask.seen(row);
        float most = maxima[row];
        walk<N, 1, T>({at}, 0, seen, mask.room, [=](int64_t j, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) value[0][e] = j + e < seen ? expf(value[0][e] - most) : 0.0f;
            store_floats(at + j, value[0]);
        });
    }
}

/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 32 to 40 registers, no shared memory. Occupancy: registers; 75 to 100% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * warp shuffles only. Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void row_sum(const T *p, int64_t rows, Mask mask, float *sums) {
    FOR_EACH_ROW(row, rows) {
        int64_t seen = mask.seen(row);
        float sum = 0.0f;
        walk<N, 1, T>({p + row * mask.room}, 0, seen, seen, [&](int64_t, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) sum += value[0][e];
        });
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) sums[row] = sum;
    }
}

/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 44 to 46 registers, no shared memory. Occupancy: registers; 62% of the warps. Reads:
 * 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs: none.
 * Fusion: all of softmax between both products, as the flash kernels do. */
template <class T, int N>
__global__ void divide(const float *sums, int64_t rows, Mask mask, T *p) {
    FOR_EACH_ROW(row, rows) {
        T *at = p + row * mask.room;
        int64_t seen = mask.seen(row);
        float sum = sums[row];
        walk<N, 1, T>({at}, 0, seen, seen, [=](int64_t j, float(&value)[1][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) value[0][e] /= sum;
            store_floats(at + j, value[0]);
        });
    }
}

/* -inf + log 0 = -inf for rows that see no key. */
/* Anatomy. Parallel: over rows of scores, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 26 registers, no shared memory. Occupancy: not limited: all warps
 * fit. Reads: one scalar per thread, coalesced. Syncs: none. Fusion: all of softmax between both products, as
 * the flash kernels do. */
__global__ void log_sum(const float *maxima, const float *sums, int64_t rows, float *lse) {
    for (int64_t i = thread_index(); i < rows; i += thread_count()) lse[i] = maxima[i] + logf(sums[i]);
}

/* delta = sum over j of p * dp */
/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 38 to 56 registers, no shared memory. Occupancy: registers; 50 to 75% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * warp shuffles only. Fusion: all of softmax's gradient between the products, as the flash kernels do. */
template <class T, int N>
__global__ void row_dot(const T *p, const T *dp, int64_t rows, Mask mask, float *delta) {
    FOR_EACH_ROW(row, rows) {
        int64_t at = row * mask.room, seen = mask.seen(row);
        float sum = 0.0f;
        walk<N, 2, T>({p + at, dp + at}, 0, seen, seen, [&](int64_t j, float(&value)[2][N]) {
#pragma unroll
            for (int e = 0; e < N; e++) sum += j + e < seen ? value[0][e] * value[1][e] : 0.0f;
        });
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) delta[row] = sum;
    }
}

/* ds = p * (dp - delta), in place of dp; 0 for masked keys. */
/* Anatomy. Parallel: over rows of scores, a warp each. Launch: grid stride, at most 32 blocks of 256 per
 * multiprocessor. Holds: 52 to 71 registers, no shared memory. Occupancy: registers; 38 to 50% of the warps.
 * Reads: 16 bytes per load, coalesced, 2 to 8 loads in flight; one element where rows are not aligned. Syncs:
 * none. Fusion: all of softmax's gradient between the products, as the flash kernels do. */
template <class T, int N>
__global__ void softmax_gradient(const T *p, const float *delta, int64_t rows, Mask mask, T *dp) {
    FOR_EACH_ROW(row, rows) {
        int64_t at = row * mask.room, seen = mask.seen(row);
        float center = delta[row];
        walk<N, 2, T>({p + at, dp + at}, 0, seen, mask.room, [=](int64_t j, float(&value)[2][N]) {
            float ds[N];
#pragma unroll
            for (int e = 0; e < N; e++) ds[e] = j + e < seen ? value[0][e] * (value[1][e] - center) : 0.0f;
            store_floats(dp + at + j, ds);
        });
    }
}

/* ---- products ---- */

/* The query heads that share a key head are adjacent, so their rows form one taller matrix: every product has
 * B * kv_heads batches, of (group * T, D), (room, D) and (group * T, room) matrices. */
Status batched_product(Ctx *ctx, const Sizes &s, Gemm g) {
    g.batch = s.batch * s.kv_heads;
    g.a_step = g.m * g.k;
    g.b_step = g.k * g.n;
    g.c_step = g.m * g.n;
    return gemm(ctx, &g);
}

Tensor rows_of(const Tensor &t, int64_t rows) {
    return tensor_view(t.data, t.dtype, shape2(rows, tensor_width(t)));
}

int64_t tall(const Sizes &s) {
    return s.heads / s.kv_heads * s.queries;
}

/* c (T, room) = a (T, D) b (room, D)^T */
Status scores_product(Ctx *ctx, const Sizes &s, Tensor a, Tensor b, Tensor c) {
    return batched_product(ctx, s,
                           gemm_forward(rows_of(a, tall(s)), rows_of(b, s.room), rows_of(c, tall(s)), 0));
}

/* c (T, D) = p (T, room) b (room, D) */
Status values_product(Ctx *ctx, const Sizes &s, Tensor p, Tensor b, Tensor c) {
    return batched_product(ctx, s,
                           gemm_dinput(rows_of(p, tall(s)), rows_of(b, s.room), rows_of(c, tall(s)), 0));
}

/* c (room, D) = p (T, room)^T a (T, D) */
Status transposed_product(Ctx *ctx, const Sizes &s, Tensor p, Tensor a, Tensor c) {
    return batched_product(ctx, s,
                           gemm_dweight(rows_of(p, tall(s)), rows_of(a, tall(s)), rows_of(c, s.room), 0));
}

/* ---- the passes ---- */

Status take_heads(Ctx *ctx, const char *name, const Sizes &s, int64_t heads, int64_t rows, Tensor *split) {
    return take(ctx, ARENA_SCRATCH, name, ctx->dtype, shape4(s.batch, heads, rows, s.size), split);
}

Status take_scores(Ctx *ctx, const char *name, const Sizes &s, Tensor *scores) {
    return take(ctx, ARENA_SCRATCH, name, ctx->dtype, shape4(s.batch, s.heads, s.queries, s.room), scores);
}

/* The contract's (B, heads, T, S) tensor with its padding, (B, heads, T, room). */
Tensor whole(const Tensor &probabilities, const Sizes &s) {
    return tensor_view(probabilities.data, probabilities.dtype, shape4(s.batch, s.heads, s.queries, s.room));
}

template <class T>
Status softmax(Ctx *ctx, const AttentionForward *a, const Sizes &s, T *p) {
    Tensor max, sum; // (B, heads, T)
    TRY(take(ctx, ARENA_SCRATCH, "attention.max", F32, shape1(s.rows), &max));
    TRY(take(ctx, ARENA_SCRATCH, "attention.sum", F32, shape1(s.rows), &sum));
    float *maxima = data_of<float>(max), *sums = data_of<float>(sum);
    Mask mask = mask_of(a, s);
    bool packed = walks_in_packs(VECTOR<T>, {s.room}, {p});
    PRIMITIVE_OF (ctx, ctx->pass, "softmax max", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"), &max)
        TRY(LAUNCH_ROWS(ctx, row_max, T, packed, s.rows, p, s.rows, mask, maxima));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax exp", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"))
        TRY(LAUNCH_ROWS(ctx, exponentials, T, packed, s.rows, maxima, s.rows, mask, p));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax sum", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"), &sum)
        TRY(LAUNCH_ROWS(ctx, row_sum, T, packed, s.rows, p, s.rows, mask, sums));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax divide", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"))
        TRY(LAUNCH_ROWS(ctx, divide, T, packed, s.rows, sums, s.rows, mask, p));
    if (!tensor_empty(a->lse))
        PRIMITIVE_OF (ctx, ctx->pass, "log-sum-exp", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                      torch_call("aten::logsumexp"), &a->lse)
            TRY(LAUNCH(ctx, log_sum, grid_stride_blocks(ctx, s.rows, 256), 256, 0, maxima, sums, s.rows,
                       data_of<float>(a->lse)));
    return OK;
}

/* With dropout, *p becomes a new tensor: the probabilities before dropout stay for the backward pass. */
Status drop_probabilities(Ctx *ctx, const AttentionForward *a, const Sizes &s, Tensor *p) {
    if (!dropout_on(&a->dropout)) return OK;
    Tensor all = *p;
    TRY(take_scores(ctx, "attention.dropped", s, p));
    PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
        TRY(dropout_apply(ctx, a->dropout, all, *p));
    return OK;
}

template <class T>
Status forward(Ctx *ctx, const AttentionForward *a) {
    const Sizes s = sizes_of(a);
    bool cached = !tensor_empty(a->cache_k);
    Tensor p = whole(a->probabilities, s); // (B, heads, T, room)
    Tensor q, y, k, v;                     // (B, heads, T, D) and (B, kv_heads, room, D)
    if (tensor_empty(a->probabilities)) TRY(take_scores(ctx, "attention.probabilities", s, &p));
    TRY(take_heads(ctx, "attention.q", s, s.heads, s.queries, &q));
    TRY(take_heads(ctx, "attention.y", s, s.heads, s.queries, &y));
    TRY(take_heads(ctx, "attention.k", s, s.kv_heads, s.room, &k));
    TRY(take_heads(ctx, "attention.v", s, s.kv_heads, s.room, &v));
    if (!tensor_empty(a->frequencies))
        PRIMITIVE (ctx, "rotary positions", ELEMENTWISE)
            TRY(rotate_heads(ctx, a, a->q, a->k, nullptr, false));
    if (cached)
        PRIMITIVE (ctx, "cache append", MEMORY, torch_call("aten::copy_")) {
            TRY(append_rows(ctx, a->k, a->past, a->pasts, a->cache_k));
            TRY(append_rows(ctx, a->v, a->past, a->pasts, a->cache_v));
        }
    PRIMITIVE (ctx, "split heads", MEMORY, torch_call("aten::copy_")) {
        TRY(split_heads(ctx, a->q, s.queries, q));
        const int64_t rows =
            tensor_empty(a->pasts) ? s.keys : s.queries; // beyond them the cache may hold NaN
        TRY(split_heads(ctx, cached ? a->cache_k : a->k, rows, k, a->pasts));
        TRY(split_heads(ctx, cached ? a->cache_v : a->v, rows, v, a->pasts));
    }
    Mask mask = mask_of(a, s);
    bool packed = walks_in_packs(VECTOR<T>, {s.room}, {p.data});
    T *scores = data_of<T>(p);
    PRIMITIVE (ctx, "score product", MATRIX, torch_call("aten::bmm")) TRY(scores_product(ctx, s, q, k, p));
    PRIMITIVE (ctx, "scale", ATTENTION, torch_call("aten::mul"))
        TRY(LAUNCH_ROWS(ctx, scale, T, packed, s.rows, s.rows, mask, a->scale, scores));
    PRIMITIVE (ctx, "mask", ATTENTION, torch_call("aten::masked_fill_"))
        TRY(LAUNCH_ROWS(ctx, hide, T, packed, s.rows, s.rows, mask, scores));
    TRY(softmax<T>(ctx, a, s, scores));
    TRY(drop_probabilities(ctx, a, s, &p));
    PRIMITIVE (ctx, "value product", MATRIX, torch_call("aten::bmm")) TRY(values_product(ctx, s, p, v, y));
    PRIMITIVE (ctx, "merge heads", MEMORY, torch_call("aten::copy_"), &a->y) TRY(merge_heads(ctx, y, a->y));
    return OK;
}

/* Computes ds from p: dp = dy v^T, then through the softmax and the scale, in place. */
template <class T>
Status score_gradient(Ctx *ctx, const AttentionForward *a, const Sizes &s, Tensor dy, Tensor v, Tensor ds) {
    Tensor delta; // (B, heads, T)
    TRY(take(ctx, ARENA_SCRATCH, "attention.delta", F32, shape1(s.rows), &delta));
    Mask mask = mask_of(a, s);
    bool packed = walks_in_packs(VECTOR<T>, {s.room}, {a->probabilities.data, ds.data});
    const T *p = data_of<T>(a->probabilities);
    T *gradient = data_of<T>(ds);
    PRIMITIVE (ctx, "probability gradient", MATRIX, torch_call("aten::bmm"))
        TRY(scores_product(ctx, s, dy, v, ds));
    if (dropout_on(&a->dropout))
        PRIMITIVE (ctx, "dropout gradient", ELEMENTWISE, torch_call("aten::native_dropout_backward"))
            TRY(dropout_apply(ctx, a->dropout, ds, ds));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax delta", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax_backward_data"))
        TRY(LAUNCH_ROWS(ctx, row_dot, T, packed, s.rows, p, gradient, s.rows, mask, data_of<float>(delta)));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax gradient", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax_backward_data"))
        TRY(LAUNCH_ROWS(ctx, softmax_gradient, T, packed, s.rows, p, data_of<float>(delta), s.rows, mask,
                        gradient));
    PRIMITIVE (ctx, "scale", ATTENTION, torch_call("aten::mul"))
        TRY(LAUNCH_ROWS(ctx, scale, T, packed, s.rows, s.rows, mask, a->scale, gradient));
    return OK;
}

template <class T>
Status backward(Ctx *ctx, const AttentionBackward *b) {
    const AttentionForward *a = b->forward;
    const Sizes s = sizes_of(a);
    Tensor p = whole(a->probabilities, s), ds; // (B, heads, T, room)
    Tensor q, k, v, dy, dq, dk, dv;            // (B, heads, T, D) and (B, kv_heads, room, D)
    TRY(take_scores(ctx, "attention.ds", s, &ds));
    TRY(take_heads(ctx, "attention.q", s, s.heads, s.queries, &q));
    TRY(take_heads(ctx, "attention.k", s, s.kv_heads, s.room, &k));
    TRY(take_heads(ctx, "attention.v", s, s.kv_heads, s.room, &v));
    TRY(take_heads(ctx, "attention.dy", s, s.heads, s.queries, &dy));
    TRY(take_heads(ctx, "attention.dq", s, s.heads, s.queries, &dq));
    TRY(take_heads(ctx, "attention.dk", s, s.kv_heads, s.room, &dk));
    TRY(take_heads(ctx, "attention.dv", s, s.kv_heads, s.room, &dv));
    PRIMITIVE (ctx, "split heads", MEMORY, torch_call("aten::copy_")) {
        TRY(split_heads(ctx, a->q, s.queries, q));
        TRY(split_heads(ctx, a->k, s.keys, k));
        TRY(split_heads(ctx, a->v, s.keys, v));
        TRY(split_heads(ctx, b->dy, s.queries, dy));
    }
    TRY(drop_probabilities(ctx, a, s, &p));
    PRIMITIVE (ctx, "value gradient", MATRIX, torch_call("aten::bmm"))
        TRY(transposed_product(ctx, s, p, dy, dv));
    TRY(score_gradient<T>(ctx, a, s, dy, v, ds));
    PRIMITIVE (ctx, "query gradient", MATRIX, torch_call("aten::bmm")) TRY(values_product(ctx, s, ds, k, dq));
    PRIMITIVE (ctx, "key gradient", MATRIX, torch_call("aten::bmm"))
        TRY(transposed_product(ctx, s, ds, q, dk));
    PRIMITIVE (ctx, "merge heads", MEMORY, torch_call("aten::cat"), &b->dq, &b->dk, &b->dv) {
        TRY(merge_heads(ctx, dq, b->dq));
        TRY(merge_heads(ctx, dk, b->dk));
        TRY(merge_heads(ctx, dv, b->dv));
    }
    if (!tensor_empty(a->frequencies))
        PRIMITIVE (ctx, "rotary gradient", ELEMENTWISE)
            TRY(rotate_heads(ctx, a, b->dq, b->dk, nullptr, true));
    return OK;
}

} // namespace

template <class T>
static Status attention_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const AttentionForward *a = static_cast<const AttentionForward *>(contract);
    return forward<T>(ctx, a);
}
SLOT(ATTENTION, FORWARD, CUDA, NAIVE, F32, attention_forward_cuda_naive<float>);
SLOT(ATTENTION, FORWARD, CUDA, NAIVE, BF16, attention_forward_cuda_naive<bf16>);

template <class T>
static Status attention_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const AttentionBackward *b = static_cast<const AttentionBackward *>(contract);
    return backward<T>(ctx, b);
}
SLOT(ATTENTION, BACKWARD, CUDA, NAIVE, F32, attention_backward_cuda_naive<float>);
SLOT(ATTENTION, BACKWARD, CUDA, NAIVE, BF16, attention_backward_cuda_naive<bf16>);
