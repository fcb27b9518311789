#include "kernels/norm/norm.h"

#include "kernels/cuda/words.cuh"
#include "kernels/dropout/cuda_mask.cuh"
#include "kernels/norm/cuda_group.cuh"

/* A row is read once and kept in registers, in 16-byte packs dealt out to the threads of its group in turn:
 * one warp up to 8 packs a thread, beyond that one block. Rows that are longer still, or not whole packs,
 * take norm_rows_any, which reads a row more than once. */
namespace {

constexpr int ROWS_THREADS = 128; // four rows at once, a warp each

/* Floor: read x, skip, write r, y (without skip: read x, write y): 4 (2) * rows * C * sizeof(T) bytes. */
template <typename T, int PACKS, bool ONE_WARP, bool DROP>
__global__ void __launch_bounds__(ONE_WARP ? ROWS_THREADS : BLOCK_THREADS)
    norm_rows(const T *x, const T *skip, const T *weight, const T *bias, T *r, T *y, float *mean, float *rstd,
              int64_t rows, int columns, float eps, const DropoutMask mask) {
    constexpr int WIDTH = VECTOR<T>;
    const int lanes = ONE_WARP ? WARP : (int)blockDim.x;
    const int lane = ONE_WARP ? (int)threadIdx.x % WARP : (int)threadIdx.x;
    const int64_t row =
        ONE_WARP ? blockIdx.x * (int64_t)(ROWS_THREADS / WARP) + threadIdx.x / WARP : blockIdx.x;
    wait_for_previous();
    let_next_start();
    if (row >= rows) return; // whole groups at a time
    const int64_t start = row * columns;

    Words packs[PACKS], skips[PACKS];
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
        if (c < columns) packs[i] = load_words(x + start + c);
        if (c < columns && skip) skips[i] = load_words(skip + start + c);
    }
    float values[PACKS][WIDTH], sum = 0.f;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) values[i][e] = 0.f;
        if (c >= columns) continue;
        unpack<T>(packs[i], values[i]);
        if (skip) {
            float added[WIDTH];
            unpack<T>(skips[i], added);
            if constexpr (DROP) drop<WIDTH>(mask, (uint32_t)*mask.draw, row, c, added);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) values[i][e] += added[e];
            const Words rounded = packed<T>(values[i]); // the statistics are those of r as it is stored
            store_words(r + start + c, rounded);
            unpack<T>(rounded, values[i]);
        }
#pragma unroll
        for (int e = 0; e < WIDTH; e++) sum += values[i][e];
    }
    const float m = group_sum<ONE_WARP>(sum, 0.f, 0).x / columns;
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        if ((lane + i * lanes) * WIDTH >= columns) continue;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) squares += (values[i][e] - m) * (values[i][e] - m);
    }
    const float s = 1.f / sqrtf(group_sum<ONE_WARP>(squares, 0.f, 1).x / columns + eps);
    if (lane == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
        if (c >= columns) continue;
        float w[WIDTH], b[WIDTH];
        unpack<T>(load_words(weight + c), w);
        unpack<T>(load_words(bias + c), b);
#pragma unroll
        for (int e = 0; e < WIDTH; e++) w[e] = (values[i][e] - m) * s * w[e] + b[e];
        store_words(y + start + c, packed<T>(w));
    }
}

/* The same for any number of columns, a block to a row: the row is read again, from the caches. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    norm_rows_any(const T *x, const T *skip, const T *weight, const T *bias, T *r, T *y, float *mean,
                  float *rstd, int columns, float eps, const DropoutMask mask) {
    const int64_t row = blockIdx.x, start = row * columns;
    wait_for_previous();
    let_next_start();
    const T *source = skip ? r : x;
    float sum = 0.f;
    for (int c = threadIdx.x; c < columns; c += BLOCK_THREADS) {
        if (skip) {
            float added[1] = {to_float(skip[start + c])};
            if (mask.on()) drop<1>(mask, (uint32_t)*mask.draw, row, c, added);
            r[start + c] = from_float<T>(to_float(x[start + c]) + added[0]);
        }
        sum += to_float(source[start + c]);
    }
    const float m = group_sum<false>(sum, 0.f, 0).x / columns;
    float squares = 0.f;
    for (int c = threadIdx.x; c < columns; c += BLOCK_THREADS) {
        const float centered = to_float(source[start + c]) - m;
        squares += centered * centered;
    }
    const float s = 1.f / sqrtf(group_sum<false>(squares, 0.f, 1).x / columns + eps);
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
    for (int c = threadIdx.x; c < columns; c += BLOCK_THREADS) {
        const float n = (to_float(source[start + c]) - m) * s;
        y[start + c] = from_float<T>(n * to_float(weight[c]) + to_float(bias[c]));
    }
}

/* Threads of a block that holds one row, `packs` packs a thread: whole warps. */
int block_threads(int64_t row_packs, int packs) {
    return (int)divide_up(row_packs, packs * WARP) * WARP;
}

/* What to launch for a row of row_packs packs; no kernel where a row is too long. */
template <typename T>
struct ForwardPlan {
    void (*kernel)(const T *, const T *, const T *, const T *, T *, T *, float *, float *, int64_t, int,
                   float, DropoutMask);
    int threads, rows; // of a block
};
template <typename T, bool DROP>
ForwardPlan<T> forward_plan(int64_t row_packs) {
    const int rows = ROWS_THREADS / WARP;
    switch (divide_up(row_packs, WARP)) {
    case 1: return {norm_rows<T, 1, true, DROP>, ROWS_THREADS, rows};
    case 2: return {norm_rows<T, 2, true, DROP>, ROWS_THREADS, rows};
    case 3: return {norm_rows<T, 3, true, DROP>, ROWS_THREADS, rows};
    case 4: return {norm_rows<T, 4, true, DROP>, ROWS_THREADS, rows};
    case 5:
    case 6: return {norm_rows<T, 6, true, DROP>, ROWS_THREADS, rows};
    case 7:
    case 8: return {norm_rows<T, 8, true, DROP>, ROWS_THREADS, rows};
    }
    if (row_packs <= 2 * BLOCK_THREADS) return {norm_rows<T, 2, false, DROP>, block_threads(row_packs, 2), 1};
    if (row_packs <= 4 * BLOCK_THREADS) return {norm_rows<T, 4, false, DROP>, block_threads(row_packs, 4), 1};
    if (row_packs <= 8 * BLOCK_THREADS) return {norm_rows<T, 8, false, DROP>, block_threads(row_packs, 8), 1};
    return {nullptr, BLOCK_THREADS, 1};
}

template <typename T>
Status forward(Ctx *ctx, const NormForward *n) {
    const int64_t rows = tensor_rows(n->x), columns = tensor_width(n->x);
    const T *x = data_of<T>(n->x), *skip = data_of<T>(n->skip);
    const T *weight = data_of<T>(n->weight), *bias = data_of<T>(n->bias);
    T *r = data_of<T>(n->r), *y = data_of<T>(n->y);
    float *mean = data_of<float>(n->mean), *rstd = data_of<float>(n->rstd);
    ForwardPlan<T> plan = {nullptr, BLOCK_THREADS, 1};
    if (walks_in_packs(VECTOR<T>, {columns}, {x, skip, weight, bias, r, y}))
        plan = dropout_on(&n->dropout) ? forward_plan<T, true>(columns / VECTOR<T>)
                                       : forward_plan<T, false>(columns / VECTOR<T>);
    const DropoutMask mask = dropout_mask(n->dropout);
    const unsigned blocks = (unsigned)divide_up(rows, plan.rows);

    PRIMITIVE (ctx, "norm") {
        if (plan.kernel)
            TRY(LAUNCH_EARLY(ctx, plan.kernel, blocks, plan.threads, 0, x, skip, weight, bias, r, y, mean,
                             rstd, rows, columns, n->eps, mask));
        else
            TRY(LAUNCH_EARLY(ctx, norm_rows_any<T>, blocks, plan.threads, 0, x, skip, weight, bias, r, y,
                             mean, rstd, columns, n->eps, mask));
    }
    return OK;
}

} // namespace

template <class T>
static Status norm_forward_cuda_fused(Ctx *ctx, const void *contract) {
    return forward<T>(ctx, (const NormForward *)contract);
}
SLOT(NORM, FORWARD, CUDA, FUSED, F32, norm_forward_cuda_fused<float>);
SLOT(NORM, FORWARD, CUDA, FUSED, BF16, norm_forward_cuda_fused<bf16>);
