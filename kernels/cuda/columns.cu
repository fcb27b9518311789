#include "kernels/cuda/columns.cuh"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/partials.cuh"

static constexpr int ROW_LANES = 8, ROWS_PER_LANE = 8, MOST_PARTS = 256;

/* Block (x, y) sums rows y, y + gridDim.y, ... (ROW_LANES at a time) of 32 packs of columns.
 * With `kinds`, only the rows of one kind. */
/* Anatomy. Parallel: over 32 packs of columns striding over rows, a block each. Launch: width / (32 packs) x
 * at most 256 blocks of 32 x 8. Holds: 26 to 32 registers, 1024 bytes to 8 KiB shared. Occupancy: not
 * limited: all warps fit. Reads: 16 bytes per load, coalesced, 4 rows in flight; one element where rows are
 * not aligned. Syncs: one barrier. Fusion: with what makes x, as the fused forms do. */
template <class T, int N>
static __global__ void sum_columns(const T *x, const int32_t *kinds, int kind, int64_t rows, int64_t width,
                                   int64_t stride, float *partials) {
    __shared__ float sums[ROW_LANES][32 * N];
    int64_t first = (int64_t)blockIdx.x * 32 * N, column = first + threadIdx.x * N;
    float sum[N] = {};
    if (column < width) {
#pragma unroll 4
        for (int64_t row = (int64_t)blockIdx.y * ROW_LANES + threadIdx.y; row < rows;
             row += gridDim.y * ROW_LANES) {
            if (kinds && kinds[row] != kind) continue;
            float value[N];
            load_floats(x + row * stride + column, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += value[e];
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++) sums[threadIdx.y][threadIdx.x * N + e] = sum[e];
    __syncthreads();
    for (int c = threadIdx.y * 32 + threadIdx.x; c < 32 * N && first + c < width; c += 32 * ROW_LANES) {
        float total = 0.0f;
        for (int lane = 0; lane < ROW_LANES; lane++) total += sums[lane][c];
        partials[blockIdx.y * width + first + c] = total;
    }
}

Status columns_take(Ctx *ctx, Tensor x, Tensor *partials) {
    int64_t parts = divide_up(tensor_rows(x), ROW_LANES * ROWS_PER_LANE);
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    return take(ctx, ARENA_SCRATCH, "columns.partials", F32, shape2(parts, tensor_width(x)), partials);
}

template <class T>
static Status add(Ctx *ctx, Tensor x, Tensor kinds, int kind, Tensor partials, Tensor sum) {
    int64_t rows = tensor_rows(x), width = tensor_width(x), parts = tensor_rows(partials);
    bool packed = walks_in_packs(VECTOR<T>, {width, x.stride}, {x.data});
    dim3 grid((unsigned)divide_up(width, 32 * (packed ? VECTOR<T> : 1)), (unsigned)parts);
    TRY(LAUNCH_PACKED(ctx, sum_columns, T, packed, grid, dim3(32, ROW_LANES), data_of<T>(x),
                      data_of<int32_t>(kinds), kind, rows, width, x.stride, data_of<float>(partials)));
    return partials_add(ctx, data_of<float>(partials), parts, width, {{data_of<float>(sum)}});
}

Status columns_add(Ctx *ctx, Tensor x, Tensor partials, Tensor sum) {
    DISPATCH_FLOAT(x.dtype, T, return add<T>(ctx, x, Tensor{}, 0, partials, sum));
}

Status columns_add_kind(Ctx *ctx, Tensor x, Tensor kinds, int kind, Tensor partials, Tensor sum) {
    if (tensor_empty(kinds) && kind != 0) return OK;
    DISPATCH_FLOAT(x.dtype, T, return add<T>(ctx, x, kinds, kind, partials, sum));
}
