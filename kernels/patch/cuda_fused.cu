/* patch in two kernels and a product per pass. */
#include "kernels/cuda/partials.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/patch/cuda.cuh"

/* Forward: one kernel reads bytes, writes normalized rows and initializes y; the product adds to y. Backward:
 * one kernel sums dy over pictures, a small one distributes the sums; then the product. */

namespace {

constexpr int THREADS = 128;

/* One block per row. Each thread writes N inputs of x, from one row of pixels, and initializes y with bias
 * or token plus position. Floor: read the bytes, write x and y. */
/* Anatomy. Parallel: over rows of x, a block each. Launch: batch x rows blocks of 128. Holds: 30 to 40
 * registers, no shared memory. Occupancy: registers; 75 to 100% of the warps. Reads: pixels a byte each, by
 * rows of the picture; bias and positions 16 bytes per load. Syncs: none. Fusion: with the product, whose
 * tiles would unfold pixels themselves. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    begin_rows(const uint8_t *pixels, const PixelScale scale, const PatchSizes s, const T *bias,
               const T *token, const T *position, T *x, T *y) {
    const int64_t row = blockIdx.x, b = row / s.rows, t = row - b * s.rows, n = t - s.first;
    wait_for_previous();
    let_next_start();
    for (int k = threadIdx.x * N; k < (int)s.inputs; k += THREADS * N) {
        float value[N] = {};
        if (n >= 0) {
            int c;
            const uint8_t *from = pixels + pixel_at(s, b, n, k, &c);
#pragma unroll
            for (int e = 0; e < N; e++)
                value[e] = (float)from[e * s.channels] * scale.scale[c] + scale.shift[c];
        }
        store_floats(x + row * s.inputs + k, value);
    }
    const T *added = n < 0 ? token : bias;
    for (int c = threadIdx.x * N; c < (int)s.outputs; c += THREADS * N) {
        float sum[N], value[N];
        load_floats(added + c, sum);
        load_floats(position + t * s.outputs + c, value);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += value[e];
        store_floats(y + row * s.outputs + c, sum);
    }
}

template <typename T>
Status forward(Ctx *ctx, const PatchForward *p) {
    const PatchSizes s = patch_sizes(p);
    const bool packed = walks_in_packs(VECTOR<T>, {s.size, s.outputs},
                                       {p->bias.data, p->token.data, p->position.data, p->x.data, p->y.data});
    PRIMITIVE (ctx, "unfold, positions", EMBEDDING, torch_none(), &p->x) {
        DISPATCH_PACK(packed, T, N,
                      TRY(LAUNCH_EARLY(ctx, (begin_rows<T, N>), (unsigned)(s.batch * s.rows), THREADS, 0,
                                       data_of<uint8_t>(p->pixels), pixel_scale(p), s, data_of<T>(p->bias),
                                       data_of<T>(p->token), data_of<T>(p->position), data_of<T>(p->x),
                                       data_of<T>(p->y))));
    }
    const Gemm product = gemm_forward(p->x, p->weight, p->y, 1);
    PRIMITIVE (ctx, "product", MATRIX, torch_call("aten::addmm")) TRY(gemm(ctx, &product));
    return OK;
}

/* sums = sum over pictures of dy, dposition += sums: N of the T*C columns per thread. Floor: read dy. */
/* Anatomy. Parallel: over packs of a picture's dy; a thread sums over pictures. Launch: count / (128 packs)
 * blocks of 128. Holds: 32 registers, no shared memory. Occupancy: not limited: all warps fit. Reads: 16
 * bytes per load, coalesced, 8 pictures in flight; one element where rows are not aligned. Syncs: none.
 * Fusion: with the sums of bias and token, two further launches. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    sum_pictures(const T *dy, int64_t batch, int64_t count, float *sums, float *dposition) {
    const int64_t i = thread_index() * N;
    wait_for_previous();
    let_next_start();
    if (i >= count) return;
    float sum[N] = {}, before[N];
#pragma unroll 8
    for (int64_t b = 0; b < batch; b++) {
        float value[N];
        load_floats(dy + b * count + i, value);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += value[e];
    }
    load_floats(dposition + i, before);
    store_floats(sums + i, sum);
#pragma unroll
    for (int e = 0; e < N; e++) before[e] += sum[e];
    store_floats(dposition + i, before);
}

template <typename T>
Status backward(Ctx *ctx, const PatchBackward *p) {
    const PatchSizes s = patch_sizes(p->forward);
    const int64_t count = s.rows * s.outputs;
    Tensor sums; // (T, C): sums over pictures
    TRY(take(ctx, ARENA_SCRATCH, "patch.sums", F32, p->dposition.shape, &sums));
    float *sum = data_of<float>(sums), *dposition = data_of<float>(p->dposition);
    const bool packed = walks_in_packs(VECTOR<T>, {count}, {p->dy.data, dposition});
    PRIMITIVE (ctx, "bias, token and position gradients", EMBEDDING) {
        DISPATCH_PACK(packed, T, N,
                      TRY(LAUNCH_EARLY(ctx, (sum_pictures<T, N>), (unsigned)divide_up(count, THREADS * N),
                                       THREADS, 0, data_of<T>(p->dy), s.batch, count, sum, dposition)));
        if (s.first) TRY(partials_add(ctx, sum, 1, s.outputs, {{data_of<float>(p->dtoken)}}));
        TRY(partials_add(ctx, sum + s.first * s.outputs, s.rows - s.first, s.outputs,
                         {{data_of<float>(p->dbias)}}));
    }
    const Gemm product = gemm_dweight(p->dy, p->forward->x, p->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    return OK;
}

} // namespace

template <class T>
static Status patch_forward_cuda_fused(Ctx *ctx, const void *contract) {
    return forward<T>(ctx, static_cast<const PatchForward *>(contract));
}
SLOT(PATCH, FORWARD, CUDA, FUSED, F32, patch_forward_cuda_fused<float>);
SLOT(PATCH, FORWARD, CUDA, FUSED, BF16, patch_forward_cuda_fused<bf16>);

template <class T>
static Status patch_backward_cuda_fused(Ctx *ctx, const void *contract) {
    return backward<T>(ctx, static_cast<const PatchBackward *>(contract));
}
SLOT(PATCH, BACKWARD, CUDA, FUSED, F32, patch_backward_cuda_fused<float>);
SLOT(PATCH, BACKWARD, CUDA, FUSED, BF16, patch_backward_cuda_fused<bf16>);
