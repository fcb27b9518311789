#include "kernels/norm/norm.h"

#include "kernels/cuda/words.cuh"
#include "kernels/norm/cuda_group.cuh"
#include "kernels/norm/cuda_row.cuh"
#include "kernels/norm/cuda_skip.cuh"

/* A row is read once and kept in registers, in 16-byte packs distributed over the threads of its group: one
 * warp for up to 8 packs per thread, else one block. Longer rows, and rows that are not whole packs, use
 * norm_rows_any, which reads a row more than once. If heads are normalized, blockIdx.y is the head. */
namespace {

constexpr int ROWS_THREADS = 128; // four rows at once, one warp each

template <typename T>
struct ForwardRows {
    const T *x, *skip, *weight, *bias; // (rows, heads * C), (rows, C) or NULL, (C), (C)
    T *r, *y;                          // (rows, C), (rows, heads * C)
    float *mean, *rstd;                // (rows), (rows, heads)
    int64_t rows, x_stride, y_stride;  // the strides are for RMS; LAYER has dense rows
    int columns;                       // C
    float eps;
    SkipMask mask;
};

/* Floor: read x, skip, write r, y (without skip: read x, write y): 4 (2) * rows * C * sizeof(T) bytes. */
/* Anatomy. Parallel: over rows: a warp each up to 8 packs per thread, else a block each. Launch: rows / 4
 * blocks of 128, or rows blocks of whole warps, at most 256; times heads. Holds: 28 to 114 registers, up to
 * 128 bytes shared. Occupancy: registers: 32 or fewer for all warps, 114 leave 25%. Reads: 16 bytes per load,
 * coalesced, each row once, all in flight at once. Syncs: shuffles; where a block has the row, one barrier
 * for each of at most two sums. Fusion: with the product that follows, whose tiles share rows. */
template <typename T, NormKind KIND, int PACKS, bool ONE_WARP, bool DROP>
__global__ void __launch_bounds__(ONE_WARP ? ROWS_THREADS : BLOCK_THREADS) norm_rows(const ForwardRows<T> n) {
    constexpr int WIDTH = VECTOR<T>;
    constexpr bool LAYER = KIND == NORM_LAYER;
    const int lanes = ONE_WARP ? WARP : (int)blockDim.x;
    const int lane = ONE_WARP ? (int)threadIdx.x % WARP : (int)threadIdx.x;
    const int64_t row =
        ONE_WARP ? blockIdx.x * (int64_t)(ROWS_THREADS / WARP) + threadIdx.x / WARP : blockIdx.x;
    wait_for_previous();
    let_next_start();
    if (row >= n.rows) return; // all threads of a group return together
    const int64_t start = LAYER ? row * n.columns : row * n.x_stride + blockIdx.y * n.columns;
    const int64_t y_start = LAYER ? start : row * n.y_stride + blockIdx.y * n.columns;

    const float inverse = 1.f / float(n.columns);
    Words packs[PACKS], skips[PACKS];
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
        if (c < n.columns) packs[i] = load_words(n.x + start + c);
        if (c < n.columns && n.skip) skips[i] = load_words(n.skip + start + c);
    }
    float values[PACKS][WIDTH], sum = 0.f; // sum: of the values, or of their squares
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) values[i][e] = 0.f;
        if (c >= n.columns) continue;
        unpack<T>(packs[i], values[i]);
        if (n.skip) {
            float added[WIDTH];
            unpack<T>(skips[i], added);
            if constexpr (DROP) drop_skip<WIDTH>(n.mask, row, c, added);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) values[i][e] += added[e];
            const Words rounded = packed<T>(values[i]); // the statistics are those of r as stored
            store_words(n.r + start + c, rounded);
            unpack<T>(rounded, values[i]);
        }
        sum = norm_row::add_pack<!LAYER>(sum, values[i]);
    }
    const float m = LAYER ? group_sum<ONE_WARP>(sum, 0.f, 0).x * inverse : 0.f;
    float squares = LAYER ? 0.f : sum;
#pragma unroll
    for (int i = 0; i < PACKS && LAYER; i++) {
        if ((lane + i * lanes) * WIDTH < n.columns) squares = norm_row::add_centered(squares, m, values[i]);
    }
    const float s = norm_row::rstd_of(group_sum<ONE_WARP>(squares, 0.f, 1).x, inverse, n.eps);
    if (lane == 0) {
        if (LAYER) n.mean[row] = m;
        n.rstd[LAYER ? row : row * gridDim.y + blockIdx.y] = s;
    }
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
        if (c >= n.columns) continue;
        float w[WIDTH], b[WIDTH] = {};
        unpack<T>(load_words(n.weight + c), w);
        if constexpr (LAYER) unpack<T>(load_words(n.bias + c), b);
        norm_row::normalize<LAYER>(values[i], m, s, w, b);
        store_words(n.y + y_start + c, packed<T>(values[i]));
    }
}

/* The same for any number of columns, one block per row: the row is read again, from the caches. */
/* Anatomy. Parallel: over rows, a block each; threads over columns. Launch: rows x heads blocks of 256.
 * Holds: 40 to 60 registers, 128 bytes shared, some spill. Occupancy: registers; 50 to 75% of the warps.
 * Reads: one element per thread, coalesced, a row up to three times, again from the caches. Syncs: one
 * barrier for each of at most two sums. Fusion: wider loads; with the product that follows. */
template <typename T, NormKind KIND>
__global__ void __launch_bounds__(BLOCK_THREADS) norm_rows_any(const ForwardRows<T> n) {
    constexpr bool LAYER = KIND == NORM_LAYER;
    const int64_t row = blockIdx.x;
    const int64_t start = LAYER ? row * n.columns : row * n.x_stride + blockIdx.y * n.columns;
    const int64_t y_start = LAYER ? start : row * n.y_stride + blockIdx.y * n.columns;
    wait_for_previous();
    let_next_start();
    const T *source = n.skip ? n.r : n.x;
    float sum = 0.f; // sum of the values, or of their squares
    for (int c = threadIdx.x; c < n.columns; c += BLOCK_THREADS) {
        if (n.skip) {
            float added[1] = {to_float(n.skip[start + c])};
            if (n.mask.on()) drop_skip<1>(n.mask, row, c, added);
            n.r[start + c] = from_float<T>(to_float(n.x[start + c]) + added[0]);
        }
        const float value = to_float(source[start + c]);
        sum += LAYER ? value : value * value;
    }
    const float m = LAYER ? group_sum<false>(sum, 0.f, 0).x / n.columns : 0.f;
    float squares = LAYER ? 0.f : sum;
    for (int c = threadIdx.x; LAYER && c < n.columns; c += BLOCK_THREADS) {
        const float centered = to_float(source[start + c]) - m;
        squares += centered * centered;
    }
    const float s = 1.f / sqrtf(group_sum<false>(squares, 0.f, 1).x / n.columns + n.eps);
    if (threadIdx.x == 0) {
        if (LAYER) n.mean[row] = m;
        n.rstd[LAYER ? row : row * gridDim.y + blockIdx.y] = s;
    }
    for (int c = threadIdx.x; c < n.columns; c += BLOCK_THREADS) {
        const float normalized = (to_float(source[start + c]) - m) * s;
        n.y[y_start + c] =
            from_float<T>(normalized * to_float(n.weight[c]) + (LAYER ? to_float(n.bias[c]) : 0.f));
    }
}

template <typename T>
struct ForwardPlan {
    void (*kernel)(ForwardRows<T>);
    int threads, rows; // threads and rows per block
};

/* Selects the kernel for a row of row_packs packs; norm_rows_any if a row is too long. `spread`: a block per
 * row even if a warp could hold it. */
template <typename T, NormKind KIND, bool DROP>
ForwardPlan<T> forward_plan(int64_t row_packs, bool spread) {
    const int rows = ROWS_THREADS / WARP;
    const norm_row::Order order((int)row_packs);
    if (!order.fits()) return {norm_rows_any<T, KIND>, BLOCK_THREADS, 1};
    if (spread && order.each == 1 && order.threads > WARP)
        return {norm_rows<T, KIND, 1, false, DROP>, order.threads, 1};
    switch (divide_up(row_packs, WARP)) {
    case 1: return {norm_rows<T, KIND, 1, true, DROP>, ROWS_THREADS, rows};
    case 2: return {norm_rows<T, KIND, 2, true, DROP>, ROWS_THREADS, rows};
    case 3: return {norm_rows<T, KIND, 3, true, DROP>, ROWS_THREADS, rows};
    case 4: return {norm_rows<T, KIND, 4, true, DROP>, ROWS_THREADS, rows};
    case 5:
    case 6: return {norm_rows<T, KIND, 6, true, DROP>, ROWS_THREADS, rows};
    case 7:
    case 8: return {norm_rows<T, KIND, 8, true, DROP>, ROWS_THREADS, rows};
    }
    switch (order.each) {
    case 2: return {norm_rows<T, KIND, 2, false, DROP>, order.threads, 1};
    case 4: return {norm_rows<T, KIND, 4, false, DROP>, order.threads, 1};
    default: return {norm_rows<T, KIND, 8, false, DROP>, order.threads, 1};
    }
}

template <typename T, NormKind KIND>
Status forward(Ctx *ctx, const NormForward *n) {
    const int64_t rows = tensor_rows(n->x), columns = tensor_width(n->weight);
    const ForwardRows<T> task = {data_of<T>(n->x),
                                 data_of<T>(n->skip),
                                 data_of<T>(n->weight),
                                 data_of<T>(n->bias),
                                 data_of<T>(n->r),
                                 data_of<T>(n->y),
                                 data_of<float>(n->mean),
                                 data_of<float>(n->rstd),
                                 rows,
                                 n->x.stride,
                                 n->y.stride,
                                 (int)columns,
                                 (float)n->eps,
                                 skip_mask(n)};
    // few rows are spread over the device; with FUSE_INVARIANT any number, or else their sums would differ
    const bool spread = rows <= cuda_device(ctx)->multiprocessors || ctx->fuses & FUSE_INVARIANT;
    ForwardPlan<T> plan = {norm_rows_any<T, KIND>, BLOCK_THREADS, 1};
    if (walks_in_packs(VECTOR<T>, {columns, n->x.stride, n->y.stride},
                       {task.x, task.skip, task.weight, task.bias, task.r, task.y}))
        plan = task.mask.on() ? forward_plan<T, KIND, true>(columns / VECTOR<T>, spread)
                              : forward_plan<T, KIND, false>(columns / VECTOR<T>, spread);
    const dim3 blocks((unsigned)divide_up(rows, plan.rows), (unsigned)norm_heads(n));
    PRIMITIVE (ctx, "norm", NORMALIZATION) TRY(LAUNCH_EARLY(ctx, plan.kernel, blocks, plan.threads, 0, task));
    return OK;
}

} // namespace

template <class T>
static Status norm_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const NormForward *n = (const NormForward *)contract;
    return n->kind == NORM_RMS ? forward<T, NORM_RMS>(ctx, n) : forward<T, NORM_LAYER>(ctx, n);
}
SLOT(NORM, FORWARD, CUDA, FUSED, F32, norm_forward_cuda_fused<float>);
SLOT(NORM, FORWARD, CUDA, FUSED, BF16, norm_forward_cuda_fused<bf16>);
