/* cast as primitives: the largest magnitude, the conversion, a transpose, sums. */
#include "kernels/cast/cast.h"

#include "kernels/cast/cuda_scale.cuh"
#include "kernels/cuda/columns.cuh"

namespace {

constexpr int THREADS = 256;

/* Floor: read x: rows * C * sizeof(T) bytes. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 16 to 32 registers, 32 bytes shared. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: two barriers
 * of the block; one atomic maximum per block. Fusion: into cast_tile where the scale is of an earlier
 * step. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS) absolute_maximum(const T *x, int64_t count, uint32_t *maximum) {
    uint32_t most = 0;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float values[N];
        load_floats(x + i, values);
#pragma unroll
        for (int e = 0; e < N; e++) most = max(most, __float_as_uint(fabsf(values[e])));
    }
    most = block_reduce<THREADS>(most, Larger());
    if (threadIdx.x == 0) atomicMax(maximum, most); // a maximum of integers: the order does not matter
}

/* y = e4m3(s * x), or y / s, and the outputs that depend on s. y or rounded may be NULL. */
/* Anatomy. Parallel: over elements, one per thread and iteration. Launch: grid stride, at most 32 blocks of
 * 256 per multiprocessor. Holds: 22 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: one scalar per thread, coalesced. Syncs: none. Fusion: with transpose and column sums, as cast_tile
 * does. */
template <class T>
__global__ void cast_elements(const T *x, const uint32_t *maximum, int64_t count, uint8_t *y, T *rounded,
                              CastScale scale) {
    const float s = scale.value();
    if (thread_index() == 0) scale.leave(s, *maximum, true);
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const uint8_t code = e4m3_of(to_float(x[i]) * s);
        if (y) y[i] = code;
        if (rounded) rounded[i] = from_float<T>(e4m3_value(code) / s);
    }
}

constexpr int SQUARE = 32;

/* Anatomy. Parallel: over tiles of 32 x 32 bytes, a block each. Launch: width / 32 x rows / 32 blocks of 32 x
 * 8. Holds: 26 registers, 1152 bytes shared. Occupancy: not limited: all warps fit. Reads: one byte per
 * thread, a warp per row of 32. Syncs: one barrier between load and store. Fusion: with the conversion, as
 * cast_tile does. */
__global__ void transpose_bytes(const uint8_t *y, int64_t rows, int64_t width, uint8_t *t) {
    __shared__ uint8_t tile[SQUARE][SQUARE + 4];
    const int64_t row = (int64_t)blockIdx.y * SQUARE, column = (int64_t)blockIdx.x * SQUARE;
    for (int i = threadIdx.y; i < SQUARE && row + i < rows; i += blockDim.y)
        if (column + threadIdx.x < width) tile[i][threadIdx.x] = y[(row + i) * width + column + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SQUARE && column + i < width; i += blockDim.y)
        if (row + threadIdx.x < rows) t[(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}

template <class T>
Status find_maximum(Ctx *ctx, Tensor x, uint32_t *maximum) {
    const int64_t count = tensor_count(x);
    const bool packs = walks_in_packs(VECTOR<T>, {count}, {x.data});
    TRY(ctx->device->fill(ctx->device, maximum, 0, sizeof *maximum));
    DISPATCH_PACK(packs, T, N,
                  return LAUNCH(ctx, (absolute_maximum<T, N>),
                                grid_stride_blocks(ctx, divide_up(count, N), THREADS), THREADS, 0,
                                data_of<T>(x), count, maximum));
}

} // namespace

template <class T>
static Status cast_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const Cast *c = static_cast<const Cast *>(contract);
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x), count = rows * width;
    const bool sums = !tensor_empty(c->sums);
    Tensor maximum, partials, y = c->y;
    TRY(take(ctx, ARENA_SCRATCH, "cast.maximum", I32, shape1(1), &maximum));
    if (!tensor_empty(c->t)) TRY(take_missing(ctx, ARENA_SCRATCH, "cast.y", E4M3, shape2(rows, width), &y));
    if (sums) TRY(columns_take(ctx, c->x, &partials));
    const CastScale scale = {data_of<float>(c->given), data_of<uint32_t>(maximum), data_of<float>(c->scale),
                             data_of<float>(c->seen)};
    PRIMITIVE (ctx, "absolute maximum", ELEMENTWISE)
        TRY(find_maximum<T>(ctx, c->x, data_of<uint32_t>(maximum)));
    PRIMITIVE (ctx, "cast", ELEMENTWISE)
        TRY(LAUNCH(ctx, (cast_elements<T>), grid_stride_blocks(ctx, count, THREADS), THREADS, 0,
                   data_of<T>(c->x), data_of<uint32_t>(maximum), count, data_of<uint8_t>(y),
                   data_of<T>(c->rounded), scale));
    if (!tensor_empty(c->t)) {
        const dim3 grid((unsigned)divide_up(width, SQUARE), (unsigned)divide_up(rows, SQUARE));
        PRIMITIVE (ctx, "transpose", ELEMENTWISE)
            TRY(LAUNCH(ctx, transpose_bytes, grid, dim3(SQUARE, 8), 0, data_of<uint8_t>(y), rows, width,
                       data_of<uint8_t>(c->t)));
    }
    if (sums)
        PRIMITIVE (ctx, "column sums", ELEMENTWISE) TRY(columns_add(ctx, c->x, partials, c->sums));
    return OK;
}
SLOT(CAST, FORWARD, CUDA, NAIVE, F32, cast_forward_cuda_naive<float>);
SLOT(CAST, FORWARD, CUDA, NAIVE, BF16, cast_forward_cuda_naive<bf16>);
