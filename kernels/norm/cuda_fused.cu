#include "kernels/norm/norm.h"

#include "kernels/device/cuda.cuh"
#include "kernels/device/partials.cuh"
#include "kernels/device/words.cuh"

/* A row is read once and kept in registers, in 16-byte packs dealt out to the threads of its group in turn:
 * one warp up to 8 (backward 2) packs a thread, beyond that one block. Rows that are longer still, or not
 * whole packs, take the *_any kernels, which read a row more than once. */
namespace {

constexpr int WARP = 32;
constexpr int ROWS_THREADS = 128;    // four rows at once, a warp each
constexpr int BLOCK_THREADS = 256;   // one row at once
constexpr int MULTIPROCESSORS = 132; // fixed, so that the order of the backward pass's sums is fixed too
constexpr int WARP_RESIDENT = 3;     // blocks that a multiprocessor's registers shall hold, backward,
constexpr int BLOCK_RESIDENT = 4;    // and blocks of one row, of one pack a thread

/* The sum of a and of b over the row's group, to all its threads. `slot` alternates between calls, so that
 * one barrier is enough: nobody writes a slot that somebody may still read. */
template <bool ONE_WARP>
__device__ float2 group_sum(float a, float b, int slot) {
    a = warp_sum(a);
    b = warp_sum(b);
    if (ONE_WARP) return make_float2(a, b);
    __shared__ float2 warps[2][BLOCK_THREADS / WARP];
    if (threadIdx.x % WARP == 0) warps[slot][threadIdx.x / WARP] = make_float2(a, b);
    __syncthreads();
    float2 sum = warps[slot][0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++) {
        sum.x += warps[slot][w].x;
        sum.y += warps[slot][w].y;
    }
    return sum;
}

/* Floor: read x, skip, write r, y (without skip: read x, write y): 4 (2) * rows * C * sizeof(T) bytes. */
template <typename T, int PACKS, bool ONE_WARP>
__global__ void __launch_bounds__(ONE_WARP ? ROWS_THREADS : BLOCK_THREADS)
    norm_rows(const T *__restrict__ x, const T *__restrict__ skip, const T *__restrict__ weight,
              const T *__restrict__ bias, T *__restrict__ r, T *__restrict__ y, float *__restrict__ mean,
              float *__restrict__ rstd, int64_t rows, int columns, float eps) {
    constexpr int WIDTH = VECTOR<T>;
    const int lanes = ONE_WARP ? WARP : (int)blockDim.x;
    const int lane = ONE_WARP ? (int)threadIdx.x % WARP : (int)threadIdx.x;
    const int64_t row =
        ONE_WARP ? blockIdx.x * (int64_t)(ROWS_THREADS / WARP) + threadIdx.x / WARP : blockIdx.x;
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
                  float *rstd, int columns, float eps) {
    const int64_t row = blockIdx.x, start = row * columns;
    const T *source = skip ? r : x;
    float sum = 0.f;
    for (int c = threadIdx.x; c < columns; c += BLOCK_THREADS) {
        if (skip) r[start + c] = from_float<T>(to_float(x[start + c]) + to_float(skip[start + c]));
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

template <typename T>
struct BackwardRows {
    const T *dy, *r, *weight; // (rows, C), (rows, C), (C)
    const float *mean, *rstd; // (rows)
    T *dr;                    // (rows, C)
    float *partials;          // (blocks, 2C): the block's part of dweight, then of dbias
    int64_t rows;
    int columns;
    bool accumulate;
};

/* A row of dy and r (and of dr, to add to), loaded one row ahead of its use. */
template <typename T, int PACKS>
struct Row {
    Words dy[PACKS], r[PACKS], before[PACKS];
    float mean, rstd;

    __device__ __forceinline__ void load(const BackwardRows<T> &b, int64_t row, int lane, int lanes) {
        mean = b.mean[row];
        rstd = b.rstd[row];
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (lane + i * lanes) * VECTOR<T>;
            if (c >= b.columns) continue;
            dy[i] = load_words(b.dy + row * b.columns + c);
            r[i] = load_words(b.r + row * b.columns + c);
            if (b.accumulate) before[i] = load_words(b.dr + row * b.columns + c);
        }
    }
};

/* The block's row of partials: dweight, then dbias. The warps add up in shared memory, one after another; a
 * block of one row has nothing to add. */
template <int PACKS, int WIDTH, bool ONE_WARP>
__device__ __forceinline__ void write_partials(const float (&dweight)[PACKS][WIDTH],
                                               const float (&dbias)[PACKS][WIDTH], int columns, float *shared,
                                               float *partials) {
    const int lanes = ONE_WARP ? WARP : (int)blockDim.x, lane = (int)threadIdx.x % lanes;
    float *sums = ONE_WARP ? shared : partials;
    for (int turn = 0; turn < (ONE_WARP ? ROWS_THREADS / WARP : 1); turn++) {
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (lane + i * lanes) * WIDTH;
            if (c >= columns || (int)threadIdx.x / lanes != turn) continue;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                sums[c + e] = dweight[i][e] + (turn ? sums[c + e] : 0.f);
                sums[columns + c + e] = dbias[i][e] + (turn ? sums[columns + c + e] : 0.f);
            }
        }
        if (ONE_WARP) __syncthreads();
    }
    for (int c = threadIdx.x; ONE_WARP && c < 2 * columns; c += ROWS_THREADS) partials[c] = sums[c];
}

/* Floor: read dy, r (and dr, to accumulate), write dr: 3 (4) * rows * C * sizeof(T) bytes. */
template <typename T, int PACKS, bool ONE_WARP>
__global__ void __launch_bounds__(ONE_WARP ? ROWS_THREADS : BLOCK_THREADS,
                                  ONE_WARP ? WARP_RESIDENT : BLOCK_RESIDENT / PACKS)
    norm_rows_backward(const BackwardRows<T> b) {
    constexpr int WIDTH = VECTOR<T>;
    const int lanes = ONE_WARP ? WARP : (int)blockDim.x;
    const int lane = ONE_WARP ? (int)threadIdx.x % WARP : (int)threadIdx.x;
    const int64_t groups = ONE_WARP ? gridDim.x * (int64_t)(ROWS_THREADS / WARP) : gridDim.x;
    const float per_column = 1.f / b.columns;
    float dweight[PACKS][WIDTH] = {}, dbias[PACKS][WIDTH] = {};

    Row<T, PACKS> row = {}; // packs beyond the row stay zero, and add nothing to any sum
    Words weights[PACKS] = {};
    int64_t n = ONE_WARP ? blockIdx.x * (int64_t)(ROWS_THREADS / WARP) + threadIdx.x / WARP : blockIdx.x;
    if (n < b.rows) row.load(b, n, lane, lanes);
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (lane + i * lanes) * WIDTH;
        if (c < b.columns) weights[i] = load_words(b.weight + c);
    }
    for (int slot = 0; n < b.rows; n += groups, slot ^= 1) {
        Row<T, PACKS> next = {};
        if (n + groups < b.rows) next.load(b, n + groups, lane, lanes);
#pragma unroll
        for (int i = 0; i < PACKS; i++) forget(weights[i]);

        float sum_g = 0.f, sum_gn = 0.f;
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            float w[WIDTH], d[WIDTH], r[WIDTH];
            unpack<T>(weights[i], w);
            unpack<T>(row.dy[i], d);
            unpack<T>(row.r[i], r);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float normalized = (r[e] - row.mean) * row.rstd, g = d[e] * w[e];
                sum_g += g;
                sum_gn += g * normalized;
                dweight[i][e] += d[e] * normalized;
                dbias[i][e] += d[e];
            }
        }
        const float2 sums = group_sum<ONE_WARP>(sum_g, sum_gn, slot);
        const float mean_g = sums.x * per_column, mean_gn = sums.y * per_column;
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            forget(row.dy[i]);
            forget(row.r[i]);
            forget(weights[i]);
        }
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (lane + i * lanes) * WIDTH;
            if (c >= b.columns) continue;
            float w[WIDTH], d[WIDTH], r[WIDTH];
            unpack<T>(weights[i], w);
            unpack<T>(row.dy[i], d);
            unpack<T>(row.r[i], r);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float normalized = (r[e] - row.mean) * row.rstd;
                d[e] = row.rstd * (d[e] * w[e] - mean_g - normalized * mean_gn);
            }
            if (b.accumulate) {
                unpack<T>(row.before[i], r);
#pragma unroll
                for (int e = 0; e < WIDTH; e++) d[e] += r[e];
            }
            store_words(b.dr + n * b.columns + c, packed<T>(d));
        }
        row = next;
    }

    extern __shared__ float shared_sums[]; // (2C) where ONE_WARP
    write_partials<PACKS, WIDTH, ONE_WARP>(dweight, dbias, b.columns, shared_sums,
                                           b.partials + (int64_t)blockIdx.x * 2 * b.columns);
}

/* The same for any number of columns. A thread keeps to its columns, so it may use its part of the block's
 * row of partials as accumulators. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS) norm_rows_backward_any(const BackwardRows<T> b) {
    float *dweight = b.partials + (int64_t)blockIdx.x * 2 * b.columns, *dbias = dweight + b.columns;
    for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) dweight[c] = dbias[c] = 0.f;
    int slot = 0;
    for (int64_t n = blockIdx.x; n < b.rows; n += gridDim.x, slot ^= 1) {
        const T *dy = b.dy + n * b.columns, *r = b.r + n * b.columns;
        T *dr = b.dr + n * b.columns;
        const float mean = b.mean[n], rstd = b.rstd[n];
        float sum_g = 0.f, sum_gn = 0.f;
        for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) {
            const float d = to_float(dy[c]), normalized = (to_float(r[c]) - mean) * rstd;
            sum_g += d * to_float(b.weight[c]);
            sum_gn += d * to_float(b.weight[c]) * normalized;
            dweight[c] += d * normalized;
            dbias[c] += d;
        }
        const float2 sums = group_sum<false>(sum_g, sum_gn, slot);
        for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) {
            const float g = to_float(dy[c]) * to_float(b.weight[c]);
            const float normalized = (to_float(r[c]) - mean) * rstd;
            const float d = rstd * (g - (sums.x + normalized * sums.y) / b.columns);
            dr[c] = from_float<T>(b.accumulate ? to_float(dr[c]) + d : d);
        }
    }
}

/* Threads of a block that holds one row, `packs` packs a thread: whole warps. */
int block_threads(int64_t row_packs, int packs) {
    return (int)divide_up(row_packs, packs * WARP) * WARP;
}

/* What to launch for a row of row_packs packs; no kernel where a row is too long. */
template <typename Kernel>
struct Plan {
    Kernel kernel;
    int threads, rows; // of a block
    int64_t most = 0;  // blocks that run at once, backward: each leaves one row of partial sums
};

template <typename T>
using ForwardKernel = void (*)(const T *, const T *, const T *, const T *, T *, T *, float *, float *,
                               int64_t, int, float);
template <typename T>
using BackwardKernel = void (*)(BackwardRows<T>);

template <typename T>
Plan<ForwardKernel<T>> forward_plan(int64_t row_packs) {
    const int rows = ROWS_THREADS / WARP;
    switch (divide_up(row_packs, WARP)) {
    case 1: return {norm_rows<T, 1, true>, ROWS_THREADS, rows};
    case 2: return {norm_rows<T, 2, true>, ROWS_THREADS, rows};
    case 3: return {norm_rows<T, 3, true>, ROWS_THREADS, rows};
    case 4: return {norm_rows<T, 4, true>, ROWS_THREADS, rows};
    case 5:
    case 6: return {norm_rows<T, 6, true>, ROWS_THREADS, rows};
    case 7:
    case 8: return {norm_rows<T, 8, true>, ROWS_THREADS, rows};
    }
    if (row_packs <= 2 * BLOCK_THREADS) return {norm_rows<T, 2, false>, block_threads(row_packs, 2), 1};
    if (row_packs <= 4 * BLOCK_THREADS) return {norm_rows<T, 4, false>, block_threads(row_packs, 4), 1};
    if (row_packs <= 8 * BLOCK_THREADS) return {norm_rows<T, 8, false>, block_threads(row_packs, 8), 1};
    return {nullptr, BLOCK_THREADS, 1};
}

template <typename T, int PACKS>
Plan<BackwardKernel<T>> backward_warp_plan() {
    return {norm_rows_backward<T, PACKS, true>, ROWS_THREADS, ROWS_THREADS / WARP,
            MULTIPROCESSORS * WARP_RESIDENT};
}

template <typename T, int PACKS>
Plan<BackwardKernel<T>> backward_block_plan(int64_t row_packs) {
    const int threads = block_threads(row_packs, PACKS);
    const int resident = BLOCK_RESIDENT * BLOCK_THREADS / (PACKS * threads);
    return {norm_rows_backward<T, PACKS, false>, threads, 1, MULTIPROCESSORS * resident};
}

template <typename T>
Plan<BackwardKernel<T>> backward_plan(int64_t row_packs) {
    if (row_packs <= 1 * WARP) return backward_warp_plan<T, 1>();
    if (row_packs <= 2 * WARP) return backward_warp_plan<T, 2>();
    if (row_packs <= 1 * BLOCK_THREADS) return backward_block_plan<T, 1>(row_packs);
    if (row_packs <= 2 * BLOCK_THREADS) return backward_block_plan<T, 2>(row_packs);
    if (row_packs <= 4 * BLOCK_THREADS) return backward_block_plan<T, 4>(row_packs);
    return {nullptr, BLOCK_THREADS, 1};
}

template <typename T>
Status forward(Ctx *ctx, const NormForward *n) {
    const int64_t rows = tensor_rows(n->x), columns = tensor_width(n->x);
    const T *x = data_of<T>(n->x), *skip = data_of<T>(n->skip);
    const T *weight = data_of<T>(n->weight), *bias = data_of<T>(n->bias);
    T *r = data_of<T>(n->r), *y = data_of<T>(n->y);
    float *mean = data_of<float>(n->mean), *rstd = data_of<float>(n->rstd);
    Plan<ForwardKernel<T>> plan = {nullptr, BLOCK_THREADS, 1};
    if (walks_in_packs(VECTOR<T>, {columns}, {x, skip, weight, bias, r, y}))
        plan = forward_plan<T>(columns / VECTOR<T>);
    const unsigned blocks = (unsigned)divide_up(rows, plan.rows);

    PRIMITIVE (ctx, "norm") {
        if (plan.kernel)
            TRY(LAUNCH(ctx, plan.kernel, blocks, plan.threads, 0, x, skip, weight, bias, r, y, mean, rstd,
                       rows, columns, n->eps));
        else
            TRY(LAUNCH(ctx, norm_rows_any<T>, blocks, plan.threads, 0, x, skip, weight, bias, r, y, mean,
                       rstd, columns, n->eps));
    }
    return OK;
}

template <typename T>
Status backward(Ctx *ctx, const NormBackward *n) {
    const NormForward *f = n->forward;
    const Tensor r = tensor_empty(f->skip) ? f->x : f->r;
    const int64_t rows = tensor_rows(r), columns = tensor_width(r);
    BackwardRows<T> b = {data_of<T>(n->dy),
                         data_of<T>(r),
                         data_of<T>(f->weight),
                         data_of<float>(f->mean),
                         data_of<float>(f->rstd),
                         data_of<T>(n->dr),
                         nullptr,
                         rows,
                         (int)columns,
                         n->accumulate};
    Plan<BackwardKernel<T>> plan = {nullptr, BLOCK_THREADS, 1};
    if (walks_in_packs(VECTOR<T>, {columns}, {b.dy, b.r, b.weight, b.dr}))
        plan = backward_plan<T>(columns / VECTOR<T>);
    if (!plan.kernel) plan = {norm_rows_backward_any<T>, BLOCK_THREADS, 1, MULTIPROCESSORS * BLOCK_RESIDENT};
    const int64_t groups = divide_up(rows, plan.rows), blocks = groups < plan.most ? groups : plan.most;
    const size_t shared = plan.rows > 1 ? (size_t)columns * 2 * sizeof(float) : 0;

    Tensor partials;
    TRY(take(ctx, ARENA_SCRATCH, "norm.partials", F32, shape2(blocks, 2 * columns), &partials));
    b.partials = data_of<float>(partials);
    PRIMITIVE (ctx, "norm gradient") {
        TRY(LAUNCH(ctx, plan.kernel, (unsigned)blocks, plan.threads, shared, b));
    }
    PRIMITIVE (ctx, "weight and bias gradient") {
        TRY(partials_add(ctx, b.partials, blocks, 2 * columns, data_of<float>(n->dweight), columns,
                         data_of<float>(n->dbias)));
    }
    return OK;
}

} // namespace

Status norm_forward_cuda_fused(Ctx *ctx, const void *contract) {
    DISPATCH_FLOAT(ctx->dtype, T, return forward<T>(ctx, (const NormForward *)contract));
}

Status norm_backward_cuda_fused(Ctx *ctx, const void *contract) {
    DISPATCH_FLOAT(ctx->dtype, T, return backward<T>(ctx, (const NormBackward *)contract));
}
