#include "kernels/norm/norm.h"

#include "kernels/cuda/partials.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/norm/cuda_group.cuh"
#include "kernels/norm/cuda_skip.cuh"

/* A row is read once and kept in registers, in 16-byte packs, by as many warps as give each thread one pack
 * (up to four for long rows). Longer rows, and rows that are not whole packs, use norm_rows_backward_any,
 * which reads a row twice. If heads are normalized, blockIdx.y is the head. */
namespace {

constexpr int MULTIPROCESSORS = 132; // constant, so that the order of sums over rows is the same on every GPU
constexpr int THREADS = 256;         // threads per block, for one row or several at once
constexpr int ANY_RESIDENT = 4;      // blocks per multiprocessor for rows of any length
constexpr int MOST_PACKS = 4;        // most packs of a row per thread

/* Sums over rows: dweight, dbias (LAYER only), and the incoming dr. */
template <NormKind KIND>
struct Sums {
    enum { DWEIGHT, DBIAS, DR = KIND == NORM_LAYER ? 2 : 1, COUNT };
};

/* Blocks of THREADS that must fit a multiprocessor's registers. */
constexpr int resident_blocks(int packs) {
    return packs == 1 ? 3 : packs == 2 ? 2 : 1;
}

template <typename T>
struct BackwardRows {
    const T *dy, *r, *weight; // (rows, C), (rows, C), (C)
    const float *mean, *rstd; // (rows)
    T *dr;                    // (rows, C)
    float *partials;          // (blocks, sums, C): partial sums of each block
    int sums;                 // Sums::COUNT, or one fewer without dr_sums
    int64_t rows;
    int64_t dy_stride, r_stride, dr_stride; // for RMS; LAYER has dense rows
    int columns;
    bool accumulate;
    T *dskip; // (rows, C) with dropout
    SkipMask mask;
};

/* The start of a tensor's row. */
template <NormKind KIND>
__device__ __forceinline__ int64_t row_start(int64_t row, int columns, int64_t stride) {
    return KIND == NORM_LAYER ? row * columns : row * stride + blockIdx.y * columns;
}

/* The index of a row's statistics. */
template <NormKind KIND>
__device__ __forceinline__ int64_t statistics_at(int64_t row) {
    return KIND == NORM_LAYER ? row : row * gridDim.y + blockIdx.y;
}

/* The block's row of partials. */
template <NormKind KIND>
__device__ __forceinline__ int64_t block_index() {
    return KIND == NORM_LAYER ? (int64_t)blockIdx.x : (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
}

/* A thread's packs of a row of dy and r (and of dr, if it accumulates). Packs beyond the row or beyond the
 * last row are zero and contribute nothing to sums. */
template <typename T, NormKind KIND, int PACKS>
struct RowPacks {
    Words dy[PACKS], r[PACKS], before[PACKS];
    float mean, rstd;

    __device__ __forceinline__ void load(const BackwardRows<T> &b, int64_t row) {
        const bool exists = row < b.rows;
        mean = KIND == NORM_LAYER && exists ? b.mean[row] : 0.f;
        rstd = exists ? b.rstd[statistics_at<KIND>(row)] : 0.f;
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (threadIdx.x + i * blockDim.x) * VECTOR<T>;
            dy[i] = r[i] = before[i] = {};
            if (!exists || c >= b.columns) continue;
            dy[i] = load_words(b.dy + row_start<KIND>(row, b.columns, b.dy_stride) + c);
            r[i] = load_words(b.r + row_start<KIND>(row, b.columns, b.r_stride) + c);
            if (b.accumulate) before[i] = load_words(b.dr + row_start<KIND>(row, b.columns, b.dr_stride) + c);
        }
    }
};

/* The sums of g, and of g times the normalized r, over the row's group; every thread of the group gets them.
 * `slot` alternates between calls: see group_sum. */
__device__ __forceinline__ float2 row_sums(float2 sums, int slot) {
    __shared__ float2 of_warp[2][THREADS / WARP];
    const int warps = blockDim.x / WARP, group = threadIdx.y * warps;
    sums = make_float2(warp_sum(sums.x), warp_sum(sums.y));
    if (warps == 1) return sums;
    if (threadIdx.x % WARP == 0) of_warp[slot][group + threadIdx.x / WARP] = sums;
    __syncthreads();
    sums = of_warp[slot][group];
    for (int w = 1; w < warps; w++) {
        sums.x += of_warp[slot][group + w].x;
        sums.y += of_warp[slot][group + w].y;
    }
    return sums;
}

/* Writes the block's row of partials. Its groups are added in shared memory, one after another. */
template <int SUMS, int PACKS, int WIDTH>
__device__ __forceinline__ void write_partials(float (&own)[SUMS][PACKS][WIDTH], int count, int columns,
                                               float *partials) {
    extern __shared__ __align__(16) float shared_sums[]; // (count, columns) if there are several groups
    for (unsigned turn = 0; turn < blockDim.y; turn++) {
        float *to = turn + 1 < blockDim.y ? shared_sums : partials;
        if (turn > 0) __syncthreads();
        if (threadIdx.y != turn) continue;
#pragma unroll
        for (int s = 0; s < SUMS; s++)
#pragma unroll
            for (int i = 0; i < PACKS; i++) {
                const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
                if (c >= columns || s >= count) continue;
                if (turn > 0) {
#pragma unroll
                    for (int e = 0; e < WIDTH; e++) own[s][i][e] += shared_sums[s * columns + c + e];
                }
                store_floats(to + s * columns + c, own[s][i]);
            }
    }
}

/* A group of blockDim.x threads, whole warps, processes a row while it loads the next one; a block has
 * blockDim.y groups. Floor: read dy, r (and dr, to accumulate), write dr: 3 (4) * rows * C * sizeof(T)
 * bytes. */
/* Anatomy. Parallel: over rows, a group of whole warps each; a block advances by the grid's stride. Launch:
 * as many blocks of at most 256 as the registers of 132 multiprocessors hold. Holds: 64 to 255 registers, 128
 * bytes shared and, with several groups, 4 bytes per column and sum, some spill. Occupancy: registers, by its
 * bounds: 3, 2 or 1 blocks per multiprocessor for 1, 2 or 4 packs per thread. Reads: 16 bytes per load,
 * coalesced, each row once, the next in flight. Syncs: one barrier per row where a group has several warps;
 * in the end one a group. Fusion: with add_partials, by the last block to finish. */
template <typename T, NormKind KIND, int PACKS, bool DROP>
__global__ void __launch_bounds__(THREADS, resident_blocks(PACKS))
    norm_rows_backward(const BackwardRows<T> b) {
    typedef Sums<KIND> S;
    constexpr bool LAYER = KIND == NORM_LAYER;
    constexpr int WIDTH = VECTOR<T>;
    const float per_column = 1.f / b.columns;
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    float sums[S::COUNT][PACKS][WIDTH] = {};
    wait_for_previous();
    let_next_start();
    Words weights[PACKS] = {};
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
        if (c < b.columns) weights[i] = load_words(b.weight + c);
    }
    int slot = 0;
    int64_t of_block = (int64_t)blockIdx.x * blockDim.y; // the block's first row
    RowPacks<T, KIND, PACKS> here, next;
    here.load(b, of_block + threadIdx.y);
    for (; of_block < b.rows; of_block += step, here = next) {
        const int64_t row = of_block + threadIdx.y;
        next.load(b, row + step);
        float2 of_row = make_float2(0.f, 0.f);
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            forget(weights[i]);
            float w[WIDTH], d[WIDTH], r[WIDTH];
            unpack<T>(weights[i], w);
            unpack<T>(here.dy[i], d);
            unpack<T>(here.r[i], r);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float normalized = (LAYER ? r[e] - here.mean : r[e]) * here.rstd, g = d[e] * w[e];
                if constexpr (LAYER) of_row.x += g;
                of_row.y += g * normalized;
                sums[S::DWEIGHT][i][e] += d[e] * normalized;
                if constexpr (LAYER) sums[S::DBIAS][i][e] += d[e];
            }
        }
        of_row = row_sums(of_row, slot);
        slot ^= 1;
        const float mean_g = of_row.x * per_column, mean_gn = of_row.y * per_column;
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int c = (threadIdx.x + i * blockDim.x) * WIDTH;
            forget(here.dy[i]);
            forget(here.r[i]);
            forget(weights[i]);
            if (c >= b.columns || row >= b.rows) continue;
            float w[WIDTH], d[WIDTH], r[WIDTH], dr[WIDTH];
            unpack<T>(weights[i], w);
            unpack<T>(here.dy[i], d);
            unpack<T>(here.r[i], r);
            unpack<T>(here.before[i], dr);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const float normalized = (LAYER ? r[e] - here.mean : r[e]) * here.rstd;
                sums[S::DR][i][e] += dr[e];
                dr[e] += here.rstd * (d[e] * w[e] - (LAYER ? mean_g : 0.f) - normalized * mean_gn);
            }
            const Words rounded = packed<T>(dr);
            store_words(b.dr + row_start<KIND>(row, b.columns, b.dr_stride) + c, rounded);
            if constexpr (DROP) {
                unpack<T>(rounded, dr);
                drop_skip<WIDTH>(b.mask, row, c, dr);
                store_words(b.dskip + row * b.columns + c, packed<T>(dr));
            }
        }
    }
    write_partials(sums, b.sums, b.columns, b.partials + block_index<KIND>() * b.sums * b.columns);
}

/* The same for any number of columns. A thread keeps its columns, so its part of the block's row of partials
 * can serve as accumulators. */
/* Anatomy. Parallel: over rows, a block each by the grid's stride; threads over columns. Launch: at most 528
 * blocks of 256. Holds: 32 to 40 registers, 128 bytes shared. Occupancy: registers; 75 to 100% of the warps.
 * Reads: one element per thread, coalesced, a row twice, again from the caches. Syncs: one barrier per row.
 * Fusion: wider loads; with add_partials. */
template <typename T, NormKind KIND>
__global__ void __launch_bounds__(BLOCK_THREADS) norm_rows_backward_any(const BackwardRows<T> b) {
    typedef Sums<KIND> S;
    constexpr bool LAYER = KIND == NORM_LAYER;
    float *partials = b.partials + block_index<KIND>() * b.sums * b.columns;
    float *dweight = partials + S::DWEIGHT * b.columns, *dbias = partials + S::DBIAS * b.columns;
    float *dr_sums = b.sums == S::COUNT ? partials + S::DR * b.columns : nullptr;
    wait_for_previous();
    let_next_start();
    for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) {
        dweight[c] = 0.f;
        if (LAYER) dbias[c] = 0.f;
        if (dr_sums) dr_sums[c] = 0.f;
    }
    int slot = 0;
    for (int64_t n = blockIdx.x; n < b.rows; n += gridDim.x, slot ^= 1) {
        const T *dy = b.dy + row_start<KIND>(n, b.columns, b.dy_stride);
        const T *r = b.r + row_start<KIND>(n, b.columns, b.r_stride);
        T *dr = b.dr + row_start<KIND>(n, b.columns, b.dr_stride);
        const float mean = LAYER ? b.mean[n] : 0.f, rstd = b.rstd[statistics_at<KIND>(n)];
        float sum_g = 0.f, sum_gn = 0.f;
        for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) {
            const float d = to_float(dy[c]), normalized = (to_float(r[c]) - mean) * rstd;
            if (LAYER) sum_g += d * to_float(b.weight[c]);
            sum_gn += d * to_float(b.weight[c]) * normalized;
            dweight[c] += d * normalized;
            if (LAYER) dbias[c] += d;
        }
        const float2 sums = group_sum<false>(sum_g, sum_gn, slot);
        for (int c = threadIdx.x; c < b.columns; c += BLOCK_THREADS) {
            const float g = to_float(dy[c]) * to_float(b.weight[c]);
            const float normalized = (to_float(r[c]) - mean) * rstd;
            const float d = rstd * (g - (sums.x + normalized * sums.y) / b.columns);
            if (dr_sums) dr_sums[c] += to_float(dr[c]);
            dr[c] = from_float<T>(b.accumulate ? to_float(dr[c]) + d : d);
            if (!b.mask.on()) continue;
            float dropped[1] = {to_float(dr[c])};
            drop_skip<1>(b.mask, n, c, dropped);
            b.dskip[n * b.columns + c] = from_float<T>(dropped[0]);
        }
    }
}

/* Selects the launch for rows of a number of packs. */
template <typename T>
struct BackwardPlan {
    void (*kernel)(BackwardRows<T>);
    dim3 threads;
    int rows;     // rows that a block processes at once
    int64_t most; // blocks that run at once, each with one row of partial sums
};

/* A group's threads hold a row; a block has as many groups as fit. */
template <typename T, NormKind KIND, int PACKS>
BackwardPlan<T> backward_plan_of(int64_t row_packs, bool drop) {
    const int lanes = (int)divide_up(row_packs, PACKS * WARP) * WARP, groups = THREADS / lanes;
    const int resident = resident_blocks(PACKS) * THREADS / (lanes * groups);
    return {drop ? norm_rows_backward<T, KIND, PACKS, true> : norm_rows_backward<T, KIND, PACKS, false>,
            dim3(lanes, groups), groups, MULTIPROCESSORS * resident};
}

template <typename T, NormKind KIND>
BackwardPlan<T> backward_plan(int64_t row_packs, bool drop) {
    if (row_packs <= 1 * THREADS) return backward_plan_of<T, KIND, 1>(row_packs, drop);
    if (row_packs <= 2 * THREADS) return backward_plan_of<T, KIND, 2>(row_packs, drop);
    return backward_plan_of<T, KIND, MOST_PACKS>(row_packs, drop);
}

template <typename T, NormKind KIND>
Status backward(Ctx *ctx, const NormBackward *n) {
    const NormForward *f = n->forward;
    const Tensor r = tensor_empty(f->skip) ? f->x : f->r;
    const int64_t rows = tensor_rows(r), columns = tensor_width(f->weight), heads = norm_heads(f);
    BackwardRows<T> b = {data_of<T>(n->dy),
                         data_of<T>(r),
                         data_of<T>(f->weight),
                         data_of<float>(f->mean),
                         data_of<float>(f->rstd),
                         data_of<T>(n->dr),
                         nullptr,
                         tensor_empty(n->dr_sums) ? Sums<KIND>::DR : Sums<KIND>::COUNT,
                         rows,
                         n->dy.stride,
                         r.stride,
                         n->dr.stride,
                         (int)columns,
                         n->accumulate,
                         data_of<T>(n->dskip),
                         skip_mask(f)};
    BackwardPlan<T> plan = {norm_rows_backward_any<T, KIND>, dim3(BLOCK_THREADS), 1,
                            MULTIPROCESSORS * ANY_RESIDENT};
    const int64_t packs = columns / VECTOR<T>;
    if (packs <= MOST_PACKS * THREADS &&
        walks_in_packs(VECTOR<T>, {columns, b.dy_stride, b.r_stride, b.dr_stride},
                       {b.dy, b.r, b.weight, b.dr, b.dskip}))
        plan = backward_plan<T, KIND>(packs, b.mask.on());
    const int64_t tiles = divide_up(rows, plan.rows), most = divide_up(plan.most, heads);
    const int64_t blocks = tiles < most ? tiles : most; // blocks per head
    const size_t shared = plan.threads.y > 1 ? (size_t)(columns * b.sums) * sizeof(float) : 0;

    Tensor partials;
    TRY(take(ctx, ARENA_SCRATCH, "norm.partials", F32, shape3(blocks * heads, b.sums, columns), &partials));
    b.partials = data_of<float>(partials);
    PRIMITIVE (ctx, "norm gradient", NORMALIZATION) {
        TRY(LAUNCH_EARLY(ctx, plan.kernel, dim3((unsigned)blocks, (unsigned)heads), plan.threads, shared, b));
    }
    float *const dr_sums = data_of<float>(n->dr_sums);
    const SumTargets targets =
        KIND == NORM_LAYER ? SumTargets{{data_of<float>(n->dweight), data_of<float>(n->dbias), dr_sums}}
                           : SumTargets{{data_of<float>(n->dweight), dr_sums}};
    PRIMITIVE (ctx, "column sums", NORMALIZATION, torch_call("aten::sum")) {
        TRY(partials_add(ctx, b.partials, blocks * heads, columns, targets));
    }
    return OK;
}

} // namespace

template <class T>
static Status norm_backward_cuda_fused(Ctx *ctx, const void *contract) {
    const NormBackward *n = (const NormBackward *)contract;
    return n->forward->kind == NORM_RMS ? backward<T, NORM_RMS>(ctx, n) : backward<T, NORM_LAYER>(ctx, n);
}
SLOT(NORM, BACKWARD, CUDA, FUSED, F32, norm_backward_cuda_fused<float>);
SLOT(NORM, BACKWARD, CUDA, FUSED, BF16, norm_backward_cuda_fused<bf16>);
