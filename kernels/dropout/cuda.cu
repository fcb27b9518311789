/* dropout: one primitive per pass, the same kernel in both forms. */
#include "kernels/dropout/cuda_mask.cuh"

/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 25 to 34 registers, no shared memory. Occupancy: registers; 75 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: with what reads y: the fused norm and attention draw their masks themselves. */
template <class T, int N>
static __global__ void drop_kernel(DropoutMask mask, const T *x, int64_t count, int64_t width, T *y) {
    const uint32_t draw = (uint32_t)*mask.draw;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width; // a pack lies within one row
        float value[N];
        load_floats(x + i, value);
        drop<N>(mask, draw, row, i - row * width, value);
        store_floats(y + i, value);
    }
}

template <class T>
static Status apply(Ctx *ctx, const Dropout &dropout, Tensor x, Tensor y) {
    int64_t count = tensor_count(x), width = tensor_width(x);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {x.data, y.data});
    return LAUNCH_ELEMENTS(ctx, drop_kernel, T, packed, count, dropout_mask(dropout), data_of<T>(x), count,
                           width, data_of<T>(y));
}

Status dropout_apply(Ctx *ctx, const Dropout &dropout, Tensor x, Tensor y) {
    DISPATCH_FLOAT(x.dtype, T, return apply<T>(ctx, dropout, x, y));
}

static Status dropout_forward_cuda(Ctx *ctx, const void *contract) {
    const DropoutForward *d = static_cast<const DropoutForward *>(contract);
    PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
        TRY(dropout_apply(ctx, d->dropout, d->x, d->y));
    return OK;
}
SLOT(DROPOUT, FORWARD, CUDA, NAIVE, F32, dropout_forward_cuda);
SLOT(DROPOUT, FORWARD, CUDA, NAIVE, BF16, dropout_forward_cuda);
SLOT(DROPOUT, FORWARD, CUDA, FUSED, F32, dropout_forward_cuda);
SLOT(DROPOUT, FORWARD, CUDA, FUSED, BF16, dropout_forward_cuda);

static Status dropout_backward_cuda(Ctx *ctx, const void *contract) {
    const DropoutBackward *d = static_cast<const DropoutBackward *>(contract);
    PRIMITIVE (ctx, "dropout gradient", ELEMENTWISE, torch_call("aten::native_dropout_backward"))
        TRY(dropout_apply(ctx, d->forward->dropout, d->dy, d->dx));
    return OK;
}
SLOT(DROPOUT, BACKWARD, CUDA, NAIVE, F32, dropout_backward_cuda);
SLOT(DROPOUT, BACKWARD, CUDA, NAIVE, BF16, dropout_backward_cuda);
SLOT(DROPOUT, BACKWARD, CUDA, FUSED, F32, dropout_backward_cuda);
SLOT(DROPOUT, BACKWARD, CUDA, FUSED, BF16, dropout_backward_cuda);
