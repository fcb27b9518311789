#include "kernels/linear/cuda_fused.cuh"

#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/linear/cuda_walk.cuh"

namespace {

constexpr int BATCH = 2; // rows in flight per thread

/* Floor: read pre, write y: 3 * rows * width * sizeof(T) bytes. */
/* Anatomy. Parallel: over columns, a pack per thread, striding over rows. Launch: tiles of 32 packs of
 * columns x row groups, at most 528 blocks of 32 x 8. Holds: 26 to 56 registers, no shared memory. Occupancy:
 * registers; 50 to 100% of the warps. Reads: 16 bytes per load, coalesced, 2 rows in flight; one element
 * where rows are not aligned. Syncs: none. Fusion: into the product's epilogue, as Hopper's own product
 * does. */
template <typename T, int N>
__global__ void __launch_bounds__(WARP *ROWS, RESIDENT)
    gate_kernel(const T *pre, int64_t rows, int64_t width, T *y) {
    const Walk walk(N);
    wait_for_previous();
    let_next_start();
    if (walk.column >= width) return;
    for (int64_t start = walk.first; start < rows; start += BATCH * walk.step) {
        Words gates[BATCH], ups[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row >= rows) break;
            gates[b] = load_words_of<T, N>(pre + 2 * row * width + walk.column);
            ups[b] = load_words_of<T, N>(pre + (2 * row + 1) * width + walk.column);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row >= rows) break;
            float z[N], up[N];
            unpack_of<T, N>(gates[b], z);
            unpack_of<T, N>(ups[b], up);
#pragma unroll
            for (int e = 0; e < N; e++) z[e] = silu(z[e]) * up[e];
            store_floats(y + row * width + walk.column, z);
        }
    }
}

/* Floor: read pre and dy, write dpre: 5 * rows * width * sizeof(T) bytes. dy may share memory with dpre: the
 * thread that overwrites an element of dy has read it before. */
/* Anatomy. Parallel: over columns, a pack per thread, striding over rows. Launch: tiles of 32 packs of
 * columns x row groups, at most 528 blocks of 32 x 8. Holds: 38 to 64 registers, no shared memory. Occupancy:
 * registers; 50 to 75% of the warps. Reads: 16 bytes per load, coalesced, 2 rows in flight; one element where
 * rows are not aligned. Syncs: none. Fusion: into the product's epilogue, as Hopper's own product does. */
template <typename T, int N>
__global__ void __launch_bounds__(WARP *ROWS, RESIDENT)
    gated_gradient_kernel(const T *pre, const T *dy, int64_t stride, int64_t rows, int64_t width, T *dpre) {
    const Walk walk(N);
    wait_for_previous();
    let_next_start();
    if (walk.column >= width) return;
    for (int64_t start = walk.first; start < rows; start += BATCH * walk.step) {
        Words gates[BATCH], ups[BATCH], gradients[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row >= rows) break;
            gates[b] = load_words_of<T, N>(pre + 2 * row * width + walk.column);
            ups[b] = load_words_of<T, N>(pre + (2 * row + 1) * width + walk.column);
            gradients[b] = load_words_of<T, N>(dy + row * stride + walk.column);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row >= rows) break;
            float z[N], up[N], d[N];
            unpack_of<T, N>(gates[b], z);
            unpack_of<T, N>(ups[b], up);
            unpack_of<T, N>(gradients[b], d);
#pragma unroll
            for (int e = 0; e < N; e++) {
                up[e] *= d[e] * silu_slope(z[e]);
                d[e] *= silu(z[e]);
            }
            store_floats(dpre + 2 * row * width + walk.column, up);
            store_floats(dpre + (2 * row + 1) * width + walk.column, d);
        }
    }
}

template <typename T, int N>
Status launch_gate(Ctx *ctx, Tensor pre, Tensor y) {
    const int64_t rows = tensor_rows(y), width = tensor_width(y);
    return LAUNCH_EARLY(ctx, (gate_kernel<T, N>), (walk_grid<T, N>(rows, width)), dim3(WARP, ROWS), 0,
                        data_of<T>(pre), rows, width, data_of<T>(y));
}

template <typename T, int N>
Status launch_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre) {
    const int64_t rows = tensor_rows(dy), width = tensor_width(dy);
    return LAUNCH_EARLY(ctx, (gated_gradient_kernel<T, N>), (walk_grid<T, N>(rows, width)), dim3(WARP, ROWS),
                        0, data_of<T>(pre), data_of<T>(dy), dy.stride, rows, width, data_of<T>(dpre));
}

} // namespace

Status gated_output(Ctx *ctx, Tensor pre, Tensor y) {
    PRIMITIVE_OF (ctx, ctx->pass, "SwiGLU", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL) {
        DISPATCH_FLOAT(y.dtype, T, {
            const bool packs = walks_in_packs(VECTOR<T>, {tensor_width(y)}, {pre.data, y.data});
            DISPATCH_PACK(packs, T, N, TRY((launch_gate<T, N>(ctx, pre, y))));
        });
    }
    return OK;
}

Status gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre) {
    PRIMITIVE_OF (ctx, ctx->pass, "SwiGLU gradient", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL) {
        DISPATCH_FLOAT(dy.dtype, T, {
            const bool packs =
                walks_in_packs(VECTOR<T>, {tensor_width(dy), dy.stride}, {pre.data, dy.data, dpre.data});
            DISPATCH_PACK(packs, T, N, TRY((launch_gradient<T, N>(ctx, pre, dy, dpre))));
        });
    }
    return OK;
}
