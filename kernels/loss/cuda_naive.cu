/* loss as eager frameworks compute it, with all logits in fp32. */
#include "kernels/loss/loss.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/gemm/gemm.h"

#include <math_constants.h>

/* Forward: log-softmax, the picked entries. Backward: softmax, one-hot target, scale, two products. */

static constexpr int THREADS = 512, SUM_THREADS = 1024;

/* In place, one block per row. Columns from `vocab` to `stride` are padding; a pack across the boundary is
 * written with the padding unchanged. Running maximum and sum: Milakov and Gimelshein 2018, "Online
 * normalizer calculation for softmax". */
/* Anatomy. Parallel: over rows of logits, a block each. Launch: rows blocks of 512. Holds: 29 to 32
 * registers, 128 bytes shared. Occupancy: not limited: all warps fit. Reads: 16 bytes per load, coalesced;
 * one element where rows are not aligned; a row twice. Syncs: four barriers in maximum and sum. Fusion: with
 * gradient, pick and scale, as softmax_rows of the fused form does. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) log_softmax(int64_t vocab, int64_t stride, T *logits) {
    T *row = logits + blockIdx.x * stride;
    float most = -CUDART_INF_F, sum = 0.0f; // sum of exp(x - most)
    for (int64_t v = threadIdx.x * N; v < vocab; v += THREADS * N) {
        float x[N], before = most, terms = 0.0f;
        load_floats(row + v, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = v + e < vocab ? x[e] : -CUDART_INF_F;
#pragma unroll
        for (int e = 0; e < N; e++) most = fmaxf(most, x[e]);
#pragma unroll
        for (int e = 0; e < N; e++) terms += expf(x[e] - most);
        sum = sum * expf(before - most) + terms;
    }
    float all = block_max<THREADS>(most);
    sum = block_sum<THREADS>(sum > 0.0f ? sum * expf(most - all) : sum);
    float log_sum_exp = all + logf(sum);
    for (int64_t v = threadIdx.x * N; v < vocab; v += THREADS * N) {
        float x[N];
        load_floats(row + v, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = v + e < vocab ? x[e] - log_sum_exp : x[e];
        store_floats(row + v, x);
    }
}

/* Reads and writes the first `vocab` columns. */
/* Anatomy. Parallel: over logits, one per thread and iteration. Launch: grid stride, at most 32 blocks of 256
 * per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one scalar per thread, coalesced. Syncs: none. Fusion: into softmax_rows, as the fused form does. */
template <class T>
static __global__ void add_bias(const T *bias, int64_t rows, int64_t vocab, int64_t stride, float *logits) {
    for (int64_t i = thread_index(); i < rows * vocab; i += thread_count()) {
        int64_t row = i / vocab, v = i - row * vocab;
        logits[row * stride + v] += to_float(bias[v]);
    }
}

/* Anatomy. Parallel: over rows, one per thread and iteration. Launch: grid stride, at most 32 blocks of 256
 * per multiprocessor. Holds: 26 registers, no shared memory. Occupancy: not limited: all warps fit. Reads:
 * one scalar per thread, a row apart from the next. Syncs: none. Fusion: into softmax_rows, as the fused form
 * does. */
static __global__ void pick(const float *log_p, const int32_t *targets, int64_t rows, int64_t stride,
                            float *losses) {
    for (int64_t n = thread_index(); n < rows; n += thread_count()) {
        losses[n] = targets[n] < 0 ? 0.0f : -log_p[n * stride + targets[n]];
    }
}

/* losses = (1 - smoothing) * losses + smoothing * mean of -log p; one block per row. */
/* Anatomy. Parallel: over rows, a block each. Launch: rows blocks of 512. Holds: 30 registers, 64 bytes
 * shared. Occupancy: not limited: all warps fit. Reads: 4 bytes a thread, coalesced. Syncs: two barriers of
 * the block in the sum. Fusion: into softmax_rows, as the fused form does. */
static __global__ void __launch_bounds__(THREADS)
    smooth(const float *log_p, const int32_t *targets, int64_t vocab, int64_t stride, float smoothing,
           float *losses) {
    if (targets[blockIdx.x] < 0) return;
    float sum = 0.0f;
    for (int64_t v = threadIdx.x; v < vocab; v += THREADS) sum -= log_p[blockIdx.x * stride + v];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = (1.0f - smoothing) * losses[blockIdx.x] + smoothing * (sum / (float)vocab);
}

/* The weight of one row's loss; count may be NULL. */
static __device__ double counted(double scale, const float *count) {
    return !count ? scale : *count > 0.0f ? scale / (double)*count : 0.0;
}

/* loss += scale * sum of losses; one block, in a fixed order. */
/* Anatomy. Parallel: over rows. Launch: one block of 1024. Holds: 32 registers, 256 bytes shared. Occupancy:
 * one block: its latency counts. Reads: 4 bytes a thread, coalesced. Syncs: two barriers of the block in the
 * sum. Fusion: with smooth, by its last block to finish. */
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_scaled(const float *losses, int64_t rows, double factor, const float *count, float *loss) {
    const double scale = counted(factor, count);
    double sum = 0.0;
    for (int64_t n = threadIdx.x; n < rows; n += SUM_THREADS) sum += losses[n];
    sum = block_sum<SUM_THREADS>(sum);
    if (threadIdx.x == 0) *loss += (float)(scale * sum);
}

/* The first `vocab` rows of a padded tensor. */
static Tensor vocab_rows(const Loss *l, Tensor t) {
    t.shape = shape2(l->vocab, tensor_width(t));
    return t;
}

static Status loss_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const Loss *l = static_cast<const Loss *>(contract);
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    Tensor log_p = l->log_probabilities; // (N, Vp) fp32: logits, then their log-softmax
    if (tensor_empty(log_p))
        TRY(take(ctx, ARENA_SCRATCH, "loss.log_probabilities", F32, shape2(rows, padded), &log_p));
    Gemm product = gemm_forward(l->hidden, vocab_rows(l, l->weight), log_p, 0);
    bool packed = walks_in_packs(VECTOR<float>, {padded}, {log_p.data});
    PRIMITIVE (ctx, "logits product", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    if (!tensor_empty(l->bias))
        PRIMITIVE (ctx, "bias add", LOSS, torch_call("aten::add"))
            DISPATCH_FLOAT(ctx->dtype, T,
                           TRY(LAUNCH(ctx, add_bias<T>, grid_stride_blocks(ctx, rows * l->vocab, 256), 256, 0,
                                      data_of<T>(l->bias), rows, l->vocab, padded, data_of<float>(log_p))));
    PRIMITIVE (ctx, "log-softmax", LOSS, torch_call("aten::_log_softmax"))
        TRY(LAUNCH_PACKED(ctx, log_softmax, float, packed, (unsigned)rows, THREADS, l->vocab, padded,
                          data_of<float>(log_p)));
    PRIMITIVE (ctx, "pick", LOSS, torch_part("aten::nll_loss_forward"), &l->losses)
        TRY(LAUNCH(ctx, pick, grid_stride_blocks(ctx, rows, 256), 256, 0, data_of<float>(log_p),
                   data_of<int32_t>(l->targets), rows, padded, data_of<float>(l->losses)));
    if (l->smoothing > 0)
        PRIMITIVE (ctx, "smoothing", LOSS, torch_call("aten::sum"))
            TRY(LAUNCH(ctx, smooth, (unsigned)rows, THREADS, 0, data_of<float>(log_p),
                       data_of<int32_t>(l->targets), l->vocab, padded, (float)l->smoothing,
                       data_of<float>(l->losses)));
    PRIMITIVE (ctx, "sum", LOSS, torch_part("aten::nll_loss_forward"))
        TRY(LAUNCH(ctx, sum_scaled, 1, SUM_THREADS, 0, data_of<float>(l->losses), rows, l->scale,
                   data_of<float>(l->count), data_of<float>(l->loss)));
    return OK;
}
SLOT(LOSS, FORWARD, CUDA, NAIVE, F32, loss_forward_cuda_naive);
SLOT(LOSS, FORWARD, CUDA, NAIVE, BF16, loss_forward_cuda_naive);

/* The backward steps process (N, Vp) including the padding, whose values are not read. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 14 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into softmax_rows, as the fused form does. */
template <class T, int N>
static __global__ void exponential(const float *log_p, int64_t count, T *p) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float x[N];
        load_floats(log_p + i, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = expf(x[e]);
        store_floats(p + i, x);
    }
}

/* p - 1 (+ smoothing) at the target, computed from log p, because a bf16 p near 1 would be rounded before
 * the subtraction. */
/* Anatomy. Parallel: over rows, one per thread and iteration. Launch: grid stride, at most 32 blocks of 256
 * per multiprocessor. Holds: 17 to 30 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one scalar per thread, a row apart from the next. Syncs: none. Fusion: into softmax_rows, as the
 * fused form does. */
template <class T>
static __global__ void subtract_targets(const float *log_p, const int32_t *targets, int64_t rows,
                                        int64_t stride, float smoothing, T *p) {
    for (int64_t n = thread_index(); n < rows; n += thread_count()) {
        if (targets[n] < 0) continue;
        int64_t at = n * stride + targets[n];
        p[at] = from_float<T>(expm1f(log_p[at]) + smoothing);
    }
}

/* p -= share */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 11 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into softmax_rows, as the fused form does. */
template <class T, int N>
static __global__ void subtract_all(float share, int64_t count, T *p) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float x[N];
        load_floats(p + i, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] -= share;
        store_floats(p + i, x);
    }
}

/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 24 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into softmax_rows, as the fused form does. */
template <class T, int N>
static __global__ void scale_rows(const int32_t *targets, int64_t count, int64_t stride, double factor,
                                  const float *counts, T *dlogits) {
    const float scale = (float)counted(factor, counts);
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        bool ignored = targets[i / stride] < 0; // a pack lies within one row
        float x[N];
        load_floats(dlogits + i, x);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = ignored ? 0.0f : scale * x[e];
        store_floats(dlogits + i, x);
    }
}

template <class T>
static Status logits_gradient(Ctx *ctx, const Loss *l, Tensor dlogits) {
    int64_t rows = tensor_rows(dlogits), padded = tensor_width(dlogits), count = rows * padded;
    const int32_t *targets = data_of<int32_t>(l->targets);
    const float *log_p = data_of<float>(l->log_probabilities);
    T *gradient = data_of<T>(dlogits);
    bool packed = walks_in_packs(VECTOR<T>, {padded}, {log_p, gradient});
    PRIMITIVE_OF (ctx, ctx->pass, "softmax", CATEGORY_LOSS, ARITHMETIC_SOFTMAX,
                  torch_call("aten::_log_softmax_backward_data"))
        TRY(LAUNCH_ELEMENTS(ctx, exponential, T, packed, count, log_p, count, gradient));
    PRIMITIVE (ctx, "subtract target", LOSS, torch_part("aten::nll_loss_backward"))
        TRY(LAUNCH(ctx, subtract_targets<T>, grid_stride_blocks(ctx, rows, 256), 256, 0, log_p, targets, rows,
                   padded, (float)l->smoothing, gradient));
    if (l->smoothing > 0)
        PRIMITIVE (ctx, "smoothing", LOSS, torch_call("aten::sum"))
            TRY(LAUNCH_ELEMENTS(ctx, subtract_all, T, packed, count, (float)(l->smoothing / (double)l->vocab),
                                count, gradient));
    PRIMITIVE (ctx, "scale", LOSS, torch_part("aten::nll_loss_backward"))
        TRY(LAUNCH_ELEMENTS(ctx, scale_rows, T, packed, count, targets, count, padded, l->scale,
                            data_of<float>(l->count), gradient));
    return OK;
}

template <class T>
static Status loss_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const Loss *l = static_cast<const Loss *>(contract);
    int64_t rows = tensor_rows(l->hidden), padded = tensor_rows(l->weight);
    Tensor dlogits; // (N, Vp)
    TRY(take(ctx, ARENA_SCRATCH, "loss.dlogits", ctx->dtype, shape2(rows, padded), &dlogits));
    TRY(logits_gradient<T>(ctx, l, dlogits));
    if (!tensor_empty(l->dbias)) {
        Tensor columns = tensor_columns(dlogits, 0, l->vocab), partials;
        TRY(columns_take(ctx, columns, &partials));
        PRIMITIVE (ctx, "bias gradient", LOSS, torch_call("aten::sum"))
            TRY(columns_add(ctx, columns, partials, l->dbias));
    }
    Gemm hidden_gradient = gemm_dinput(dlogits, vocab_rows(l, l->weight), l->dhidden, 0);
    PRIMITIVE (ctx, "hidden gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &hidden_gradient));
    Gemm weight_gradient = gemm_dweight(tensor_columns(dlogits, 0, l->vocab), l->hidden, l->dweight, 1);
    PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &weight_gradient));
    return OK;
}
SLOT(LOSS, BACKWARD, CUDA, NAIVE, F32, loss_backward_cuda_naive<float>);
SLOT(LOSS, BACKWARD, CUDA, NAIVE, BF16, loss_backward_cuda_naive<bf16>);
