#include "kernels/norm/norm.h"

#include "kernels/device/cuda.cuh"
#include "kernels/device/partials.cuh"
#include "kernels/device/words.cuh"

/* A row is read once and kept in registers, in 16-byte packs dealt out to the threads of its group in turn:
 * forward one warp up to 8 packs a thread, beyond that one block; backward as many warps as give each thread
 * one pack of a row, and two rows at a time, so that enough is on its way. Rows that are longer still, or not
 * whole packs, take the *_any kernels, which read a row more than once. */
namespace {

constexpr int WARP = 32;
constexpr int ROWS_THREADS = 128;     // four rows at once, a warp each
constexpr int BLOCK_THREADS = 256;    // one row at once
constexpr int MULTIPROCESSORS = 132;  // fixed, so that the order of the backward pass's sums is fixed too
constexpr int BACKWARD_THREADS = 256; // one row or several at once
constexpr int ANY_RESIDENT = 4;       // blocks of a multiprocessor for rows of any length, backward
constexpr int MOST_PACKS = 4;         // of a row that a thread holds, backward

/* Blocks of BACKWARD_THREADS that a multiprocessor's registers shall hold. */
constexpr int backward_resident(int packs) {
    return packs == 1 ? 3 : packs == 2 ? 2 : 1;
}

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

/* A thread's packs of ROWS rows of dy and r (and of dr, to add to). What lies beyond a row or beyond the last
 * row is zero, and adds nothing to any sum. */
template <typename T, int PACKS, int ROWS>
struct Tile {
    Words dy[ROWS][PACKS], r[ROWS][PACKS], before[ROWS][PACKS];
    float mean[ROWS], rstd[ROWS];

    __device__ __forceinline__ void load(const BackwardRows<T> &b, int64_t first) {
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const bool there = first + n < b.rows;
            mean[n] = there ? b.mean[first + n] : 0.f;
            rstd[n] = there ? b.rstd[first + n] : 0.f;
#pragma unroll
            for (int i = 0; i < PACKS; i++) {
                const int c = (threadIdx.x + i * blockDim.x) * VECTOR<T>;
                const int64_t at = (first + n) * b.columns + c;
                dy[n][i] = r[n][i] = before[n][i] = {};
                if (!there || c >= b.columns) continue;
                dy[n][i] = load_words(b.dy + at);
                r[n][i] = load_words(b.r + at);
                if (b.accumulate) before[n][i] = load_words(b.dr + at);
            }
        }
    }
};

/* Of each row, the sums over its group of g and of g times the normalized r, to all threads of the group.
 * `slot` alternates between calls: see group_sum. */
template <int ROWS>
__device__ __forceinline__ void tile_sums(float2 (&sums)[ROWS], int slot) {
    __shared__ float2 of_warp[2][BACKWARD_THREADS / WARP][ROWS];
    const int warps = blockDim.x / WARP, group = threadIdx.y * warps;
#pragma unroll
    for (int n = 0; n < ROWS; n++) sums[n] = make_float2(warp_sum(sums[n].x), warp_sum(sums[n].y));
    if (warps == 1) return;
    if (threadIdx.x % WARP == 0) {
#pragma unroll
        for (int n = 0; n < ROWS; n++) of_warp[slot][group + threadIdx.x / WARP][n] = sums[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
        sums[n] = of_warp[slot][group][n];
        for (int w = 1; w < warps; w++) {
            sums[n].x += of_warp[slot][group + w][n].x;
            sums[n].y += of_warp[slot][group + w][n].y;
        }
    }
}

/* The block's row of partials: dweight, then dbias. Its groups add up in shared memory, one after another. */
template <int PACKS, int WIDTH>
__device__ __forceinline__ void write_partials(const float (&dweight)[PACKS][WIDTH],
                                               const float (&dbias)[PACKS][WIDTH], int columns,
                                               float *partials) {
    extern __shared__ float shared_sums[]; // (2, columns) where there are several groups
    for (unsigned turn = 0; turn < blockDim.y; turn++) {
        float *sums = turn + 1 < blockDim.y ? shared_sums : partials;
        if (turn > 0) __syncthreads();
        if (threadIdx.y != turn) continue;
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
            if (c >= columns) continue;
            float w[WIDTH], b[WIDTH];
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                w[e] = dweight[i][e] + (turn ? shared_sums[c + e] : 0.f);
                b[e] = dbias[i][e] + (turn ? shared_sums[columns + c + e] : 0.f);
            }
            store_floats(sums + c, w);
            store_floats(sums + columns + c, b);
        }
    }
}

/* A group of blockDim.x threads, whole warps, takes ROWS rows at a time; a block has blockDim.y groups.
 * Floor: read dy, r (and dr, to accumulate), write dr: 3 (4) * rows * C * sizeof(T) bytes. */
template <typename T, int PACKS, int ROWS>
__global__ void __launch_bounds__(BACKWARD_THREADS, backward_resident(PACKS))
    norm_rows_backward(const BackwardRows<T> b) {
    constexpr int WIDTH = VECTOR<T>;
    const float per_column = 1.f / b.columns;
    const int64_t step = (int64_t)gridDim.x * blockDim.y * ROWS;
    float dweight[PACKS][WIDTH] = {}, dbias[PACKS][WIDTH] = {};
    Words weights[PACKS] = {};
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
        if (c < b.columns) weights[i] = load_words(b.weight + c);
    }
    int slot = 0;
    for (int64_t of_block = (int64_t)blockIdx.x * blockDim.y * ROWS; of_block < b.rows; of_block += step) {
        const int64_t first = of_block + threadIdx.y * ROWS;
        Tile<T, PACKS, ROWS> tile;
        tile.load(b, first);
        float2 sums[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            sums[n] = make_float2(0.f, 0.f);
#pragma unroll
            for (int i = 0; i < PACKS; i++) {
                forget(weights[i]);
                float w[WIDTH], d[WIDTH], r[WIDTH];
                unpack<T>(weights[i], w);
                unpack<T>(tile.dy[n][i], d);
                unpack<T>(tile.r[n][i], r);
#pragma unroll
                for (int e = 0; e < WIDTH; e++) {
                    const float normalized = (r[e] - tile.mean[n]) * tile.rstd[n], g = d[e] * w[e];
                    sums[n].x += g;
                    sums[n].y += g * normalized;
                    dweight[i][e] += d[e] * normalized;
                    dbias[i][e] += d[e];
                }
            }
        }
        tile_sums(sums, slot);
        slot ^= 1;
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const float mean_g = sums[n].x * per_column, mean_gn = sums[n].y * per_column;
#pragma unroll
            for (int i = 0; i < PACKS; i++) {
                const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
                forget(tile.dy[n][i]);
                forget(tile.r[n][i]);
                forget(weights[i]);
                if (c >= b.columns || first + n >= b.rows) continue;
                float w[WIDTH], d[WIDTH], r[WIDTH], sum[WIDTH];
                unpack<T>(weights[i], w);
                unpack<T>(tile.dy[n][i], d);
                unpack<T>(tile.r[n][i], r);
                unpack<T>(tile.before[n][i], sum);
#pragma unroll
                for (int e = 0; e < WIDTH; e++) {
                    const float normalized = (r[e] - tile.mean[n]) * tile.rstd[n];
                    sum[e] += tile.rstd[n] * (d[e] * w[e] - mean_g - normalized * mean_gn);
                }
                store_words(b.dr + (first + n) * b.columns + c, packed<T>(sum));
            }
        }
    }
    write_partials<PACKS, WIDTH>(dweight, dbias, b.columns, b.partials + (int64_t)blockIdx.x * 2 * b.columns);
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
template <typename T>
struct ForwardPlan {
    void (*kernel)(const T *, const T *, const T *, const T *, T *, T *, float *, float *, int64_t, int,
                   float);
    int threads, rows; // of a block
};
template <typename T>
struct BackwardPlan {
    void (*kernel)(BackwardRows<T>);
    dim3 threads;
    int rows;     // that a block takes at once
    int64_t most; // blocks that run at once: each leaves one row of partial sums
};

template <typename T>
ForwardPlan<T> forward_plan(int64_t row_packs) {
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

/* A group's threads hold a row; a block has as many groups as fit. */
template <typename T, int PACKS, int ROWS>
BackwardPlan<T> backward_plan_of(int64_t row_packs) {
    const int lanes = (int)divide_up(row_packs, PACKS * WARP) * WARP, groups = BACKWARD_THREADS / lanes;
    const int resident = backward_resident(PACKS) * BACKWARD_THREADS / (lanes * groups);
    return {norm_rows_backward<T, PACKS, ROWS>, dim3(lanes, groups), groups * ROWS,
            MULTIPROCESSORS * resident};
}

template <typename T>
BackwardPlan<T> backward_plan(int64_t row_packs) {
    if (row_packs <= 1 * BACKWARD_THREADS) return backward_plan_of<T, 1, 2>(row_packs);
    if (row_packs <= 2 * BACKWARD_THREADS) return backward_plan_of<T, 2, 1>(row_packs);
    return backward_plan_of<T, MOST_PACKS, 1>(row_packs);
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
    BackwardPlan<T> plan = {norm_rows_backward_any<T>, dim3(BLOCK_THREADS), 1,
                            MULTIPROCESSORS * ANY_RESIDENT};
    const int64_t packs = columns / VECTOR<T>;
    if (packs <= MOST_PACKS * BACKWARD_THREADS &&
        walks_in_packs(VECTOR<T>, {columns}, {b.dy, b.r, b.weight, b.dr}))
        plan = backward_plan<T>(packs);
    const int64_t tiles = divide_up(rows, plan.rows), blocks = tiles < plan.most ? tiles : plan.most;
    const size_t shared = plan.threads.y > 1 ? (size_t)columns * 2 * sizeof(float) : 0;

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
