/* patch as eager frameworks compute it: normalize, unfold, product, additions. */
#include "kernels/cuda/columns.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/patch/cuda.cuh"

/* values = normalized pixels, in the same order. */
/* Anatomy. Parallel: over packs of pixels, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: one byte at a time, neighbours by neighbouring threads. Syncs: none. Fusion: with unfold,
 * as the fused form does. */
template <class T, int N>
static __global__ void normalize(const uint8_t *pixels, PixelScale scale, int64_t count, int64_t channels,
                                 T *values) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float x[N];
#pragma unroll
        for (int e = 0; e < N; e++) {
            const int c = (int)((i + e) % channels);
            x[e] = (float)pixels[i + e] * scale.scale[c] + scale.shift[c];
        }
        store_floats(values + i, x);
    }
}

/* x (B, T, channels*P*P) = unfolded values (B, H, W, channels). */
/* Anatomy. Parallel: over elements of x, one per thread and iteration. Launch: grid stride, at most 32 blocks
 * of 256 per multiprocessor. Holds: 30 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one element per thread, a row of a patch apart from the next. Syncs: none. Fusion: with normalize,
 * as the fused form does. */
template <class T>
static __global__ void unfold(const T *values, const PatchSizes s, int64_t count, T *x) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = i / s.inputs, b = row / s.rows, n = row % s.rows - s.first;
        int channel;
        x[i] = n < 0 ? from_float<T>(0.f) : values[pixel_at(s, b, n, (int)(i - row * s.inputs), &channel)];
    }
}

/* y[b,t] += added[t] for `rows` rows starting at `first`; with `period` 1, added is one row for all. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 28 to 36 registers, no shared memory. Occupancy: registers; 75 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: bias, token and position in one pass, as the fused form does. */
template <class T, int N>
static __global__ void add_rows(const T *added, int64_t period, const PatchSizes s, int64_t first,
                                int64_t rows, int64_t count, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        const int64_t n = i / s.outputs, c = i - n * s.outputs, t = n % rows;
        T *to = y + ((n / rows) * s.rows + first + t) * s.outputs + c;
        float sum[N], value[N];
        load_floats(to, sum);
        load_floats(added + t % period * s.outputs + c, value);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += value[e];
        store_floats(to, sum);
    }
}

template <class T>
static Status add(Ctx *ctx, Tensor added, const PatchSizes &s, int64_t first, int64_t rows, Tensor y) {
    const int64_t count = s.batch * rows * s.outputs, period = tensor_rows(added);
    const bool packed = walks_in_packs(VECTOR<T>, {s.outputs}, {added.data, y.data});
    return LAUNCH_ELEMENTS(ctx, add_rows, T, packed, count, data_of<T>(added), period, s, first, rows, count,
                           data_of<T>(y));
}

template <class T>
static Status patch_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const PatchForward *p = static_cast<const PatchForward *>(contract);
    const PatchSizes s = patch_sizes(p);
    const int64_t count = tensor_count(p->pixels), inputs = tensor_count(p->x);
    Tensor values; // (B, H, W, channels)
    TRY(take(ctx, ARENA_SCRATCH, "patch.values", p->x.dtype, p->pixels.shape, &values));
    const bool packed = walks_in_packs(VECTOR<T>, {count}, {});
    PRIMITIVE (ctx, "normalize", ELEMENTWISE, torch_call("aten::div"))
        TRY(LAUNCH_ELEMENTS(ctx, normalize, T, packed, count, data_of<uint8_t>(p->pixels), pixel_scale(p),
                            count, s.channels, data_of<T>(values)));
    PRIMITIVE (ctx, "unfold", MEMORY, torch_call("aten::im2col"), &p->x)
        TRY(LAUNCH(ctx, unfold<T>, grid_stride_blocks(ctx, inputs, 256), 256, 0, data_of<T>(values), s,
                   inputs, data_of<T>(p->x)));
    const Gemm product = gemm_forward(p->x, p->weight, p->y, 0);
    PRIMITIVE (ctx, "product", MATRIX, torch_call("aten::addmm")) TRY(gemm(ctx, &product));
    PRIMITIVE (ctx, "bias add", ELEMENTWISE, torch_part("aten::addmm"))
        TRY(add<T>(ctx, p->bias, s, s.first, s.rows - s.first, p->y));
    if (s.first)
        PRIMITIVE (ctx, "class token", MEMORY, torch_call("aten::cat"))
            TRY(add<T>(ctx, p->token, s, 0, 1, p->y));
    PRIMITIVE (ctx, "position add", EMBEDDING, torch_call("aten::add"))
        TRY(add<T>(ctx, p->position, s, 0, s.rows, p->y));
    return OK;
}
SLOT(PATCH, FORWARD, CUDA, NAIVE, F32, patch_forward_cuda_naive<float>);
SLOT(PATCH, FORWARD, CUDA, NAIVE, BF16, patch_forward_cuda_naive<bf16>);

static Status patch_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const PatchBackward *p = static_cast<const PatchBackward *>(contract);
    const PatchSizes s = patch_sizes(p->forward);
    const Gemm product = gemm_dweight(p->dy, p->forward->x, p->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    /* All rows of a picture as one row, so that columns are summed over pictures. */
    const Tensor pictures = tensor_reshape(p->dy, shape2(s.batch, s.rows * s.outputs));
    Tensor sums, partials; // (T, C): sums over pictures
    TRY(take(ctx, ARENA_SCRATCH, "patch.sums", F32, p->dposition.shape, &sums));
    TRY(columns_take(ctx, pictures, &partials));
    PRIMITIVE (ctx, "position sum", ELEMENTWISE, torch_call("aten::sum")) {
        TRY(ctx->device->fill(ctx->device, sums.data, 0, tensor_bytes(sums)));
        TRY(columns_add(ctx, pictures, partials, sums));
        TRY(columns_add(ctx, tensor_reshape(sums, shape2(1, tensor_count(sums))), partials, p->dposition));
    }
    Tensor patches = sums;
    patches.shape = shape2(s.rows - s.first, s.outputs);
    patches.data = data_of<float>(sums) + s.first * s.outputs;
    if (s.first) {
        const Tensor row = tensor_view(sums.data, F32, shape2(1, s.outputs));
        PRIMITIVE (ctx, "token sum", ELEMENTWISE, torch_call("aten::sum"))
            TRY(columns_add(ctx, row, partials, p->dtoken));
    }
    TRY(columns_take(ctx, patches, &partials));
    PRIMITIVE (ctx, "bias gradient", ELEMENTWISE, torch_call("aten::sum"))
        TRY(columns_add(ctx, patches, partials, p->dbias));
    return OK;
}
SLOT(PATCH, BACKWARD, CUDA, NAIVE, F32, patch_backward_cuda_naive);
SLOT(PATCH, BACKWARD, CUDA, NAIVE, BF16, patch_backward_cuda_naive);
