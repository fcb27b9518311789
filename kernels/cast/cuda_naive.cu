/* cast as primitives: the largest magnitude, the conversion, a transpose. */
#include "kernels/cast/cast.h"

#include "kernels/cast/cuda_scale.cuh"
#include "kernels/cuda/reduce.cuh"

namespace {

constexpr int THREADS = 256;

struct Larger {
    __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

/* Floor: read x: rows * C * sizeof(T) bytes. */
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
    if (threadIdx.x == 0) atomicMax(maximum, most); // of integers: any order gives the same
}

/* y = e4m3(s * x), or the value of that over s, and scale = 1 / s. y or rounded may be NULL. */
template <class T>
__global__ void cast_elements(const T *x, const uint32_t *maximum, int64_t count, uint8_t *y, T *rounded,
                              float *scale) {
    const float s = e4m3_scale(*maximum);
    if (thread_index() == 0) *scale = 1 / s;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const uint8_t code = e4m3_of(to_float(x[i]) * s);
        if (y) y[i] = code;
        if (rounded) rounded[i] = from_float<T>(e4m3_value(code) / s);
    }
}

constexpr int TILE = 32;

__global__ void transpose_bytes(const uint8_t *y, int64_t rows, int64_t width, uint8_t *t) {
    __shared__ uint8_t tile[TILE][TILE + 4];
    const int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
    for (int i = threadIdx.y; i < TILE && row + i < rows; i += blockDim.y)
        if (column + threadIdx.x < width) tile[i][threadIdx.x] = y[(row + i) * width + column + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < TILE && column + i < width; i += blockDim.y)
        if (row + threadIdx.x < rows) t[(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}

template <class T>
Status convert(Ctx *ctx, Tensor x, Tensor maximum, Tensor y, Tensor rounded, Tensor scale) {
    const int64_t count = tensor_count(x);
    return LAUNCH(ctx, (cast_elements<T>), grid_stride_blocks(ctx, count, THREADS), THREADS, 0, data_of<T>(x),
                  data_of<uint32_t>(maximum), count, data_of<uint8_t>(y), data_of<T>(rounded),
                  data_of<float>(scale));
}

} // namespace

Status cast_maximum(Ctx *ctx, Tensor x, Tensor *maximum) {
    TRY(take(ctx, ARENA_SCRATCH, "cast.maximum", I32, shape1(1), maximum));
    const int64_t count = tensor_count(x);
    PRIMITIVE (ctx, "absolute maximum", ELEMENTWISE) {
        TRY(ctx->device->fill(ctx->device, maximum->data, 0, sizeof(uint32_t)));
        DISPATCH_FLOAT(x.dtype, T, {
            const bool packs = walks_in_packs(VECTOR<T>, {count}, {x.data});
            DISPATCH_PACK(packs, T, N,
                          TRY(LAUNCH(ctx, (absolute_maximum<T, N>),
                                     grid_stride_blocks(ctx, divide_up(count, N), THREADS), THREADS, 0,
                                     data_of<T>(x), count, data_of<uint32_t>(*maximum))));
        });
    }
    return OK;
}

template <class T>
static Status cast_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const Cast *c = static_cast<const Cast *>(contract);
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x);
    Tensor maximum, y = c->y;
    TRY(cast_maximum(ctx, c->x, &maximum));
    if (!tensor_empty(c->t)) TRY(take_missing(ctx, ARENA_SCRATCH, "cast.y", E4M3, shape2(rows, width), &y));
    PRIMITIVE (ctx, "cast", ELEMENTWISE) TRY(convert<T>(ctx, c->x, maximum, y, c->rounded, c->scale));
    if (!tensor_empty(c->t)) {
        const dim3 grid((unsigned)divide_up(width, TILE), (unsigned)divide_up(rows, TILE));
        PRIMITIVE (ctx, "transpose", ELEMENTWISE)
            TRY(LAUNCH(ctx, transpose_bytes, grid, dim3(TILE, 8), 0, data_of<uint8_t>(y), rows, width,
                       data_of<uint8_t>(c->t)));
    }
    return OK;
}
SLOT(CAST, FORWARD, CUDA, NAIVE, F32, cast_forward_cuda_naive<float>);
SLOT(CAST, FORWARD, CUDA, NAIVE, BF16, cast_forward_cuda_naive<bf16>);
