/* gather: one primitive per pass, the same kernels in both forms. */
#include "kernels/gather/gather.h"

#include "kernels/cuda/packs.cuh"

/* Anatomy. Parallel: over packs of y, one per thread and iteration. Launch: grid stride, at most 32 blocks of
 * 256 per multiprocessor. Holds: 28 to 30 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: 16 bytes per load, coalesced within a row; one element where rows are not aligned. Syncs: none.
 * Fusion: with what reads y, where that goes by rows. */
template <class T, int N>
static __global__ void gather(const T *x, const int32_t *from, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        int64_t chosen = from[row];
        Pack<T, N> pack = {};
        if (chosen >= 0) pack = load_pack<N>(x + chosen * width + column);
        store_pack(y + i, pack);
    }
}

/* Anatomy. Parallel: over packs of dy, one per thread and iteration. Launch: grid stride, at most 32 blocks
 * of 256 per multiprocessor. Holds: 27 to 32 registers, no shared memory. Occupancy: not limited: all warps
 * fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none. Fusion: with
 * the clearing of dx, by a map of rows that go nowhere. */
template <class T, int N>
static __global__ void scatter(const T *dy, const int32_t *from, int64_t count, int64_t width, T *dx) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        int64_t to = from[row];
        if (to >= 0) store_pack(dx + to * width + column, load_pack<N>(dy + i));
    }
}

template <class T>
static Status forward(Ctx *ctx, const GatherForward *g) {
    int64_t count = tensor_count(g->y), width = tensor_width(g->y);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {g->x.data, g->y.data});
    PRIMITIVE (ctx, "gather", MEMORY, torch_call("aten::index_select"))
        TRY(LAUNCH_ELEMENTS(ctx, gather, T, packed, count, data_of<T>(g->x), data_of<int32_t>(g->rows), count,
                            width, data_of<T>(g->y)));
    return OK;
}

template <class T>
static Status backward(Ctx *ctx, const GatherBackward *g) {
    int64_t count = tensor_count(g->dy), width = tensor_width(g->dy);
    const int32_t *from = data_of<int32_t>(g->forward->rows);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {g->dy.data, g->dx.data});
    PRIMITIVE (ctx, "clear", MEMORY, torch_call("aten::zero_"))
        TRY(ctx->device->fill(ctx->device, g->dx.data, 0, tensor_bytes(g->dx)));
    if (count == 0) return OK;
    PRIMITIVE (ctx, "scatter", MEMORY, torch_call("aten::index_add_"))
        TRY(LAUNCH_ELEMENTS(ctx, scatter, T, packed, count, data_of<T>(g->dy), from, count, width,
                            data_of<T>(g->dx)));
    return OK;
}

template <class T>
static Status gather_forward_cuda(Ctx *ctx, const void *contract) {
    return forward<T>(ctx, static_cast<const GatherForward *>(contract));
}
SLOT(GATHER, FORWARD, CUDA, NAIVE, F32, gather_forward_cuda<float>);
SLOT(GATHER, FORWARD, CUDA, NAIVE, BF16, gather_forward_cuda<bf16>);
SLOT(GATHER, FORWARD, CUDA, FUSED, F32, gather_forward_cuda<float>);
SLOT(GATHER, FORWARD, CUDA, FUSED, BF16, gather_forward_cuda<bf16>);

template <class T>
static Status gather_backward_cuda(Ctx *ctx, const void *contract) {
    return backward<T>(ctx, static_cast<const GatherBackward *>(contract));
}
SLOT(GATHER, BACKWARD, CUDA, NAIVE, F32, gather_backward_cuda<float>);
SLOT(GATHER, BACKWARD, CUDA, NAIVE, BF16, gather_backward_cuda<bf16>);
SLOT(GATHER, BACKWARD, CUDA, FUSED, F32, gather_backward_cuda<float>);
SLOT(GATHER, BACKWARD, CUDA, FUSED, BF16, gather_backward_cuda<bf16>);
