/* embed as eager frameworks compute it: a gather per table, additions; backward: a sort, ordered sums. */
#include "kernels/embed/embed.h"

#include "kernels/cuda/elements.cuh"
#include "kernels/embed/cuda_sort.cuh"

/* y[n,:] = table[tokens[n],:] */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 registers, no shared memory. Occupancy: not limited: all warps
 * fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none. Fusion: the
 * tables in one pass, as gather_rows of the fused form does. */
template <class T, int N>
static __global__ void gather(const T *table, const int32_t *tokens, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        store_pack(y + i, load_pack<N>(table + tokens[row] * width + column));
    }
}

/* y[b,t,:] = table[pasts[b] + t,:]; pasts NULL: all 0. A batch row has `period` elements. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 26 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: the tables in one pass, as gather_rows of the fused form does. */
template <class T, int N>
static __global__ void gather_positions(const T *table, const int32_t *pasts, int64_t count, int64_t width,
                                        int64_t period, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        const int64_t past = pasts ? pasts[i / period] : 0;
        store_pack(y + i, load_pack<N>(table + past * width + i % period));
    }
}

/* y[n,:] = table[segments[n],:]; segments NULL: all 0. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 27 to 30 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: the tables in one pass, as gather_rows of the fused form does. */
template <class T, int N>
static __global__ void gather_segments(const T *table, const int32_t *segments, int64_t count, int64_t width,
                                       T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        store_pack(y + i, load_pack<N>(table + (segments ? segments[row] : 0) * width + column));
    }
}

/* y *= factor */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 11 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: the tables in one pass, as gather_rows of the fused form does. */
template <class T, int N>
static __global__ void scale(float factor, int64_t count, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float x[N];
        load_floats(y + i, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] *= factor;
        store_floats(y + i, x);
    }
}

template <class T>
static Status forward(Ctx *ctx, const EmbedForward *e) {
    int64_t count = tensor_count(e->y), width = tensor_width(e->y);
    int64_t period = tensor_width(e->tokens) * width;
    bool packed = walks_in_packs(VECTOR<T>, {width}, {e->token.data, e->y.data});
    PRIMITIVE (ctx, "token gather", EMBEDDING, torch_call("aten::embedding"), &e->y)
        TRY(LAUNCH_ELEMENTS(ctx, gather, T, packed, count, data_of<T>(e->token), data_of<int32_t>(e->tokens),
                            count, width, data_of<T>(e->y)));
    if (e->scale != 1)
        PRIMITIVE (ctx, "scale", EMBEDDING, torch_call("aten::mul"))
            TRY(LAUNCH_ELEMENTS(ctx, scale, T, packed, count, (float)e->scale, count, data_of<T>(e->y)));
    if (!tensor_empty(e->position)) {
        Tensor positions; // (B, T, C)
        TRY(take(ctx, ARENA_SCRATCH, "embed.positions", e->y.dtype, e->y.shape, &positions));
        const bool own = !tensor_empty(e->pasts);
        const T *first = data_of<T>(e->position) + (own ? 0 : e->past * width);
        bool position_packed = packed && walks_in_packs(1, {}, {first});
        PRIMITIVE (ctx, "position gather", EMBEDDING, torch_call("aten::embedding"))
            TRY(LAUNCH_ELEMENTS(ctx, gather_positions, T, position_packed, count, first,
                                data_of<int32_t>(e->pasts), count, width, period, data_of<T>(positions)));
        PRIMITIVE (ctx, "add", EMBEDDING, torch_call("aten::add"))
            TRY(LAUNCH_ELEMENTS(ctx, add_elements, T, packed, count, data_of<T>(e->y), data_of<T>(positions),
                                count, data_of<T>(e->y)));
    }
    if (tensor_empty(e->segment)) return OK;
    Tensor kinds; // (B, T, C)
    TRY(take(ctx, ARENA_SCRATCH, "embed.segments", e->y.dtype, e->y.shape, &kinds));
    bool segment_packed = packed && walks_in_packs(1, {}, {e->segment.data});
    PRIMITIVE (ctx, "segment gather", EMBEDDING, torch_call("aten::embedding"))
        TRY(LAUNCH_ELEMENTS(ctx, gather_segments, T, segment_packed, count, data_of<T>(e->segment),
                            data_of<int32_t>(e->segments), count, width, data_of<T>(kinds)));
    PRIMITIVE (ctx, "add", EMBEDDING, torch_call("aten::add"))
        TRY(LAUNCH_ELEMENTS(ctx, add_elements, T, packed, count, data_of<T>(e->y), data_of<T>(kinds), count,
                            data_of<T>(e->y)));
    return OK;
}

template <class T>
static Status embed_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const EmbedForward *e = static_cast<const EmbedForward *>(contract);
    return forward<T>(ctx, e);
}
SLOT(EMBED, FORWARD, CUDA, NAIVE, F32, embed_forward_cuda_naive<float>);
SLOT(EMBED, FORWARD, CUDA, NAIVE, BF16, embed_forward_cuda_naive<bf16>);

/* dposition[i] += sum over b of dy[b,i], for the `period` elements i of one batch row. */
/* Anatomy. Parallel: over packs of a position's row; a thread sums over batch rows. Launch: grid stride, at
 * most 32 blocks of 256 per multiprocessor. Holds: 28 to 44 registers, no shared memory. Occupancy:
 * registers; 62 to 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not
 * aligned. Syncs: none. Fusion: with the scatter, which reads the same dy. */
template <class T, int N>
static __global__ void sum_batches(const T *dy, int64_t batch, int64_t period, float *dposition) {
    for (int64_t i = thread_index() * N; i < period; i += thread_count() * N) {
        float sum[N], value[N];
        load_floats(dposition + i, sum);
        for (int64_t b = 0; b < batch; b++) {
            load_floats(dy + b * period + i, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += value[e];
        }
        store_floats(dposition + i, sum);
    }
}

template <class T>
static Status position_sum(Ctx *ctx, const EmbedBackward *e) {
    const EmbedForward *f = e->forward;
    int64_t width = tensor_width(f->y), period = tensor_width(f->tokens) * width;
    float *dposition = data_of<float>(e->dposition) + f->past * width;
    bool packed = walks_in_packs(VECTOR<T>, {period}, {e->dy.data, dposition});
    return LAUNCH_ELEMENTS(ctx, sum_batches, T, packed, period, data_of<T>(e->dy), tensor_rows(f->tokens),
                           period, dposition);
}

template <class T>
static Status embed_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const EmbedBackward *e = static_cast<const EmbedBackward *>(contract);
    const EmbedForward *f = e->forward;
    int64_t vocabulary = tensor_rows(f->token);
    TokenSort sort;
    TRY(token_sort_take(ctx, tensor_count(f->tokens), vocabulary, tensor_width(f->y), &sort));
    PRIMITIVE (ctx, "token sort", EMBEDDING, torch_call("aten::embedding_dense_backward"))
        TRY(token_sort(ctx, f->tokens, vocabulary, &sort));
    PRIMITIVE (ctx, "token scatter add", EMBEDDING, torch_part("aten::embedding_dense_backward"))
        TRY(token_scatter_add(ctx, &sort, e->dy, f->scale, e->dtoken));
    if (!tensor_empty(e->dposition))
        PRIMITIVE (ctx, "position sum", EMBEDDING, torch_call("aten::embedding_dense_backward"))
            TRY(position_sum<T>(ctx, e));
    return tensor_empty(e->dsegment) ? OK : segment_sums(ctx, e->dy, f->segments, e->dsegment);
}
SLOT(EMBED, BACKWARD, CUDA, NAIVE, F32, embed_backward_cuda_naive<float>);
SLOT(EMBED, BACKWARD, CUDA, NAIVE, BF16, embed_backward_cuda_naive<bf16>);
