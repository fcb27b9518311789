/* pool: one primitive per pass, the same kernels in both forms. */
#include "kernels/cuda/packs.cuh"
#include "kernels/pool/pool.h"

/* The mean of the first `counted` of `rows` rows: one or all. */
/* Anatomy. Parallel: over packs of y; a thread sums its column down the rows. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced, 4 rows in flight; one element where rows are not aligned.
 * Syncs: none. Fusion: with the classifier, its one reader. */
template <class T, int N>
static __global__ void mean_rows(const T *x, int64_t counted, int64_t rows, int64_t count, int64_t width,
                                 T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        const int64_t b = i / width;
        const T *from = x + b * rows * width + (i - b * width);
        float sum[N] = {};
#pragma unroll 4
        for (int64_t t = 0; t < counted; t++) {
            float value[N];
            load_floats(from + t * width, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += value[e];
        }
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] /= (float)counted;
        store_floats(y + i, sum);
    }
}

/* Anatomy. Parallel: over packs of dx, one per thread and iteration. Launch: grid stride, at most 32 blocks
 * of 256 per multiprocessor. Holds: 28 to 40 registers, no shared memory. Occupancy: registers; 75 to 100% of
 * the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: with the backward pass of the norm before it. */
template <class T, int N>
static __global__ void spread_rows(const T *dy, int64_t counted, int64_t rows, int64_t count, int64_t width,
                                   T *dx) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        const int64_t row = i / width, b = row / rows;
        float value[N] = {};
        if (row - b * rows < counted) load_floats(dy + b * width + (i - row * width), value);
#pragma unroll
        for (int e = 0; e < N; e++) value[e] /= (float)counted;
        store_floats(dx + i, value);
    }
}

static const char *name_of(const PoolForward *p, bool forward) {
    if (p->kind == POOL_FIRST) return forward ? "first rows" : "first rows gradient";
    return forward ? "mean" : "mean gradient";
}

static Category category_of(const PoolForward *p) {
    return p->kind == POOL_FIRST ? CATEGORY_MEMORY : CATEGORY_ELEMENTWISE;
}

static TorchName torch_of(const PoolForward *p, bool forward) {
    if (p->kind == POOL_FIRST) return torch_call(forward ? "aten::select" : "aten::select_backward");
    return torch_call(forward ? "aten::mean" : "aten::div");
}

template <class T>
static Status pool_forward_cuda(Ctx *ctx, const void *contract) {
    const PoolForward *p = static_cast<const PoolForward *>(contract);
    const int64_t count = tensor_count(p->y), width = tensor_width(p->y), rows = p->x.shape.d[1];
    const bool packed = walks_in_packs(VECTOR<T>, {width}, {p->x.data, p->y.data});
    PRIMITIVE_OF (ctx, ctx->pass, name_of(p, true), category_of(p), ARITHMETIC_PLAIN, torch_of(p, true))
        TRY(LAUNCH_ELEMENTS(ctx, mean_rows, T, packed, count, data_of<T>(p->x),
                            p->kind == POOL_FIRST ? 1 : rows, rows, count, width, data_of<T>(p->y)));
    return OK;
}
SLOT(POOL, FORWARD, CUDA, NAIVE, F32, pool_forward_cuda<float>);
SLOT(POOL, FORWARD, CUDA, NAIVE, BF16, pool_forward_cuda<bf16>);
SLOT(POOL, FORWARD, CUDA, FUSED, F32, pool_forward_cuda<float>);
SLOT(POOL, FORWARD, CUDA, FUSED, BF16, pool_forward_cuda<bf16>);

template <class T>
static Status pool_backward_cuda(Ctx *ctx, const void *contract) {
    const PoolBackward *p = static_cast<const PoolBackward *>(contract);
    const int64_t count = tensor_count(p->dx), width = tensor_width(p->dx), rows = p->dx.shape.d[1];
    const bool packed = walks_in_packs(VECTOR<T>, {width}, {p->dy.data, p->dx.data});
    PRIMITIVE_OF (ctx, ctx->pass, name_of(p->forward, false), category_of(p->forward), ARITHMETIC_PLAIN,
                  torch_of(p->forward, false))
        TRY(LAUNCH_ELEMENTS(ctx, spread_rows, T, packed, count, data_of<T>(p->dy),
                            p->forward->kind == POOL_FIRST ? 1 : rows, rows, count, width,
                            data_of<T>(p->dx)));
    return OK;
}
SLOT(POOL, BACKWARD, CUDA, NAIVE, F32, pool_backward_cuda<float>);
SLOT(POOL, BACKWARD, CUDA, NAIVE, BF16, pool_backward_cuda<bf16>);
SLOT(POOL, BACKWARD, CUDA, FUSED, F32, pool_backward_cuda<float>);
SLOT(POOL, BACKWARD, CUDA, FUSED, BF16, pool_backward_cuda<bf16>);
