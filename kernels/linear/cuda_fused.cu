#include "kernels/linear/linear.h"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/partials.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/gemm/cuda.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/linear/cuda_fused.cuh"
#include "kernels/linear/cuda_walk.cuh"

/* Bias, tanh-GELU, SwiGLU and their gradients run in the product's epilogue if it supports them; otherwise in
 * one extra kernel. */
namespace {

/* pre = y + bias, y = activation(pre), in place; bias and pre may be NULL.
 * Floor: read y, write y and pre: 2 (3) * rows * O * sizeof(T) bytes. */
/* Anatomy. Parallel: over columns, a pack per thread, striding over rows. Launch: tiles of 32 packs of
 * columns x row groups, at most 528 blocks of 32 x 8. Holds: 32 to 64 registers, no shared memory. Occupancy:
 * registers; 50 to 100% of the warps. Reads: 16 bytes per load, coalesced, 4 rows in flight; one element
 * where rows are not aligned. Syncs: none. Fusion: into the product's epilogue, which takes it where there is
 * one. */
template <typename T, int N, Activation A>
__global__ void __launch_bounds__(WARP *ROWS, RESIDENT)
    bias_activation(const T *bias, int64_t rows, int64_t width, T *pre, T *y) {
    constexpr int BATCH = 4; // rows in flight per thread
    const Walk walk(N);
    wait_for_previous();
    let_next_start();
    if (walk.column >= width) return;
    float added[N] = {};
    if (bias) unpack_of<T, N>(load_words_of<T, N>(bias + walk.column), added);
    for (int64_t start = walk.first; start < rows; start += BATCH * walk.step) {
        Words words[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row < rows) words[b] = load_words_of<T, N>(y + row * width + walk.column);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step, at = row * width + walk.column;
            if (row >= rows) break;
            float z[N];
            unpack_of<T, N>(words[b], z);
#pragma unroll
            for (int e = 0; e < N; e++) z[e] += added[e];
            if (pre) store_floats(pre + at, z);
#pragma unroll
            for (int e = 0; e < N; e++) z[e] = activated<A>(z[e]);
            store_floats(y + at, z);
        }
    }
}

/* With an activation A, writes dpre = dy * activation'(pre); otherwise dpre is dy. A block's sums of dpre
 * over its rows go to row blockIdx.y of partials (blocks, O), which may be NULL. dpre may be dy. Floor: read
 * dy (and pre, write dpre): 1 (3) * rows * O * sizeof(T) bytes. */
/* Anatomy. Parallel: over columns, a pack per thread, striding over rows. Launch: tiles of 32 packs of
 * columns x row groups, at most 528 blocks of 32 x 8. Holds: 40 to 64 registers, 1024 bytes to 8 KiB shared.
 * Occupancy: registers; 50 to 75% of the warps. Reads: 16 bytes per load, coalesced, 2 or 4 rows in flight;
 * one element where rows are not aligned. Syncs: one barrier. Fusion: with the product that makes dy, in its
 * epilogue. */
template <typename T, int N, Activation A>
__global__ void __launch_bounds__(WARP *ROWS, RESIDENT)
    column_sums(const T *dy, const T *pre, int64_t rows, int64_t width, T *dpre, float *partials) {
    constexpr bool GRADIENT = A != ACTIVATION_NONE;
    constexpr int BATCH = GRADIENT ? 2 : 4; // rows in flight per thread
    const Walk walk(N);
    float sum[N] = {};
    wait_for_previous();
    let_next_start();
    for (int64_t start = walk.first; walk.column < width && start < rows; start += BATCH * walk.step) {
        Words words[BATCH], inputs[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step, at = row * width + walk.column;
            if (row < rows) words[b] = load_words_of<T, N>(dy + at);
            if (GRADIENT && row < rows) inputs[b] = load_words_of<T, N>(pre + at);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = start + b * walk.step;
            if (row >= rows) break;
            float d[N];
            unpack_of<T, N>(words[b], d);
            if constexpr (GRADIENT) {
                float z[N];
                unpack_of<T, N>(inputs[b], z);
#pragma unroll
                for (int e = 0; e < N; e++) d[e] = to_float(from_float<T>(d[e] * slope_of<A>(z[e])));
                store_floats(dpre + row * width + walk.column, d);
            }
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += d[e];
        }
    }
    if (!partials) return;
    __shared__ float sums[ROWS][N][WARP];
#pragma unroll
    for (int e = 0; e < N; e++) sums[threadIdx.y][e][threadIdx.x] = sum[e];
    __syncthreads();
    for (int c = threadIdx.y * WARP + threadIdx.x; c < N * WARP; c += ROWS * WARP) {
        const int64_t column = (int64_t)blockIdx.x * WARP * N + c;
        if (column >= width) continue;
        float total = 0.f;
        for (int row = 0; row < ROWS; row++) total += sums[row][c % N][c / N];
        partials[blockIdx.y * width + column] = total;
    }
}

/* Whether to use the epilogue. It saves a pass over the output, so it is used wherever cuBLASLt supports it,
 * except GELU in full fp32: cuBLASLt's GELU uses the hardware's tanh, accurate only to 2^-11. While measuring
 * the answer does not matter, because neither way takes scratch. */
bool in_epilogue(Ctx *ctx, const Gemm *product, const GemmEpilogue *epilogue) {
    const bool exact = product->c_dtype == F32 && !ctx->tf32;
    if (ctx->measuring || (exact && epilogue->kind != EPILOGUE_BIAS)) return false;
    return gemm_cuda_supports(ctx, product, epilogue);
}

/* Runs the product without an epilogue, possibly with a matrix to add. */
Status plain(Ctx *ctx, const Gemm *product, const GemmEpilogue *epilogue) {
    return ctx->measuring ? OK : gemm_cuda_epilogue(ctx, product, epilogue);
}

template <typename T>
Status forward(Ctx *ctx, const LinearForward *l) {
    const bool bytes = !tensor_empty(l->x8.y);
    if (l->casts_input) TRY(deferred_input(ctx, l));
    if (!bytes && linear_tiles_suit(ctx, l)) return linear_tiles(ctx, l);
    if (!bytes && linear_rows_suit(ctx, l)) {
        PRIMITIVE (ctx, "few rows", MATRIX) TRY(linear_rows(ctx, l));
        return OK;
    }
    if (ctx->fuses & FUSE_INVARIANT)
        return fail(
            ERROR_USAGE,
            "--fused=invariant on a GPU needs layers of a multiple of %d inputs, not %lld, and no fp8",
            VECTOR<T>, (long long)tensor_width(l->weight));
    const bool activate = l->activation != ACTIVATION_NONE, skip = !tensor_empty(l->skip);
    const Gemm product = linear_product(l, l->y, skip ? 1 : 0);
    const T *bias = data_of<T>(l->bias);
    GemmEpilogue epilogue = {};
    epilogue.added = l->skip.data;
    if (tensor_empty(l->bias) && !activate) {
        PRIMITIVE (ctx, skip ? "product, residual add" : "product", MATRIX)
            TRY(plain(ctx, &product, &epilogue));
        return OK;
    }
    const bool erf = l->activation == ACTIVATION_GELU;
    epilogue.kind = !activate              ? EPILOGUE_BIAS
                    : tensor_empty(l->pre) ? (erf ? EPILOGUE_ERF_BIAS : EPILOGUE_GELU_BIAS)
                                           : (erf ? EPILOGUE_ERF_AUX_BIAS : EPILOGUE_GELU_AUX_BIAS);
    epilogue.bias = bias;
    if (epilogue_writes_aux(epilogue.kind)) {
        epilogue.aux = l->pre.data;
        epilogue.aux_ld = l->pre.stride;
    }
    const bool known = !activate || erf || l->activation == ACTIVATION_GELU_TANH; // products implement these
                                                                                  // activations
    if (!tensor_empty(l->bias) && known && in_epilogue(ctx, &product, &epilogue)) {
        PRIMITIVE (ctx,
                   activate ? "product, bias, GELU"
                   : skip   ? "product, bias, residual add"
                            : "product, bias",
                   MATRIX)
            TRY(gemm_cuda_epilogue(ctx, &product, &epilogue));
        return OK;
    }

    const int64_t rows = tensor_rows(l->y), width = tensor_width(l->y);
    T *pre = data_of<T>(l->pre), *y = data_of<T>(l->y);
    epilogue = {}; // the pass below adds bias and activation
    epilogue.added = l->skip.data;
    PRIMITIVE (ctx, skip ? "product, residual add" : "product", MATRIX) TRY(plain(ctx, &product, &epilogue));
    const bool packs = walks_in_packs(VECTOR<T>, {width}, {bias, pre, y});
    PRIMITIVE_OF (ctx, ctx->pass, activate ? "bias, activation" : "bias",
                  activate ? CATEGORY_ACTIVATION : CATEGORY_ELEMENTWISE,
                  activation_arithmetic(l->activation)) {
        DISPATCH_ACTIVATION(
            l->activation, A,
            DISPATCH_PACK(packs, T, N,
                          TRY(LAUNCH_EARLY(ctx, (bias_activation<T, N, A>), (walk_grid<T, N>(rows, width)),
                                           dim3(WARP, ROWS), 0, bias, rows, width, pre, y))));
    }
    return OK;
}

/* Computes dpre = dy * activation'(pre) if there is an activation (dpre may be dy), and dbias += the sums of
 * dpre over rows, unless dbias is empty. */
template <typename T, int N>
Status gradient_and_sums(Ctx *ctx, Activation activation, Tensor dy, Tensor pre, Tensor dpre, Tensor dbias) {
    const int64_t rows = tensor_rows(dy), width = tensor_width(dy);
    const dim3 grid = walk_grid<T, N>(rows, width);
    Tensor partials = {};
    if (!tensor_empty(dbias))
        TRY(take(ctx, ARENA_SCRATCH, "linear.partials", F32, shape2(grid.y, width), &partials));
    float *sums = tensor_empty(dbias) ? nullptr : data_of<float>(partials);
    const bool active = activation != ACTIVATION_NONE;
    PRIMITIVE_OF (ctx, ctx->pass, active ? activation_gradient_name(activation) : "bias gradient",
                  active ? CATEGORY_ACTIVATION : CATEGORY_ELEMENTWISE, activation_arithmetic(activation)) {
        DISPATCH_ACTIVATION(
            activation, A,
            TRY(LAUNCH_EARLY(ctx, (column_sums<T, N, A>), grid, dim3(WARP, ROWS), 0, data_of<T>(dy),
                             data_of<T>(pre), rows, width, data_of<T>(dpre), sums)));
        if (sums) TRY(partials_add(ctx, sums, grid.y, width, {{data_of<float>(dbias)}}));
    }
    return OK;
}

template <typename T>
Status gradient_and_bias(Ctx *ctx, Activation activation, Tensor dy, Tensor pre, Tensor dpre, Tensor dbias) {
    const bool packs = walks_in_packs(VECTOR<T>, {tensor_width(dy)}, {dy.data, pre.data, dpre.data});
    DISPATCH_PACK(packs, T, N, return (gradient_and_sums<T, N>(ctx, activation, dy, pre, dpre, dbias)));
}

template <typename T>
Status input_gradient(Ctx *ctx, const LinearBackward *l, Tensor dpre) {
    const bool gated = l->input && activation_gated(l->input->activation);
    if (gated) {
        const Gemm whole = linear_input_gradient(l, dpre, l->dx);
        GemmEpilogue epilogue = {};
        epilogue.kind = EPILOGUE_DSWIGLU;
        epilogue.aux = l->input->pre.data;
        epilogue.aux_ld = l->input->pre.stride;
        if (in_epilogue(ctx, &whole, &epilogue)) {
            PRIMITIVE (ctx, "input gradient, SwiGLU gradient", MATRIX)
                TRY(gemm_cuda_epilogue(ctx, &whole, &epilogue));
            return OK;
        }
    }
    const Tensor dx = gated ? tensor_columns(l->dx, 0, tensor_width(l->forward->x)) : l->dx;
    const Gemm product = linear_input_gradient(l, dpre, dx);
    GemmEpilogue epilogue = {};
    const Activation below = l->input ? l->input->activation : ACTIVATION_NONE;
    if (below == ACTIVATION_GELU_TANH || below == ACTIVATION_GELU) {
        epilogue.kind = below == ACTIVATION_GELU ? EPILOGUE_DERF : EPILOGUE_DGELU;
        epilogue.aux = l->input->pre.data;
        epilogue.aux_ld = l->input->pre.stride;
        if (in_epilogue(ctx, &product, &epilogue)) {
            PRIMITIVE (ctx, "input gradient, GELU gradient", MATRIX)
                TRY(gemm_cuda_epilogue(ctx, &product, &epilogue));
            return OK;
        }
    }
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    if (gated) return gated_gradient(ctx, l->input->pre, dx, l->dx);
    if (!l->input) return OK;
    return gradient_and_bias<T>(ctx, l->input->activation, l->dx, l->input->pre, l->dx, Tensor{});
}

template <typename T>
Status backward(Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    const bool active = f->activation != ACTIVATION_NONE && !l->dy_is_dpre && !f->deferred;
    Tensor dpre = l->dy;
    if (f->casts_input) TRY(deferred_input(ctx, f));
    if (f->deferred) TRY(deferred_gradient(ctx, l));
    if (active) TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, l->dy.shape, &dpre));
    if (active || (!f->deferred && !tensor_empty(l->dbias)))
        TRY(gradient_and_bias<T>(ctx, active ? f->activation : ACTIVATION_NONE, l->dy,
                                 active ? f->pre : Tensor{}, dpre, l->dbias));
    if (!tensor_empty(l->dweight)) {
        const Gemm product = linear_weight_gradient(l, dpre);
        PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    }
    return tensor_empty(l->dx) ? OK : input_gradient<T>(ctx, l, dpre);
}

/* pre is saved only for the backward pass. */
template <typename T>
Status forward_gated(Ctx *ctx, const LinearForward *l) {
    // while measuring, the scratch of fewer rows is taken, too
    if (!ctx->measuring && linear_tiles_suit(ctx, l)) return linear_tiles(ctx, l);
    Tensor pre = l->pre; // (..., O)
    TRY(take_missing(ctx, ARENA_SCRATCH, "linear.pre", l->x.dtype, linear_pre_shape(l), &pre));
    const Gemm product = linear_product(l, l->y, 0);
    GemmEpilogue epilogue = {};
    epilogue.kind = EPILOGUE_SWIGLU;
    epilogue.aux = l->pre.data;
    epilogue.aux_ld = l->pre.stride;
    if (tensor_empty(l->bias) && !linear_rows_suit(ctx, l) && in_epilogue(ctx, &product, &epilogue)) {
        PRIMITIVE (ctx, "product, SwiGLU", MATRIX) TRY(gemm_cuda_epilogue(ctx, &product, &epilogue));
        return OK;
    }
    const LinearForward plain = linear_ungated(l, pre);
    TRY(forward<T>(ctx, &plain));
    return gated_output(ctx, pre, l->y);
}

} // namespace

template <class T>
static Status linear_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const LinearForward *l = (const LinearForward *)contract;
    return activation_gated(l->activation) ? forward_gated<T>(ctx, l) : forward<T>(ctx, l);
}
SLOT(LINEAR, FORWARD, CUDA, FUSED, F32, linear_forward_cuda_fused<float>);
SLOT(LINEAR, FORWARD, CUDA, FUSED, BF16, linear_forward_cuda_fused<bf16>);

template <class T>
static Status linear_backward_cuda_fused(Ctx *ctx, const void *contract) {
    const LinearBackward *l = (const LinearBackward *)contract;
    if (!activation_gated(l->forward->activation) || l->dy_is_dpre || l->forward->deferred)
        return backward<T>(ctx, l);
    Tensor dpre; // (..., O)
    TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, linear_pre_shape(l->forward), &dpre));
    TRY(gated_gradient(ctx, l->forward->pre, l->dy, dpre));
    const LinearBackward rest = linear_ungated_backward(l, dpre);
    return backward<T>(ctx, &rest);
}
SLOT(LINEAR, BACKWARD, CUDA, FUSED, F32, linear_backward_cuda_fused<float>);
SLOT(LINEAR, BACKWARD, CUDA, FUSED, BF16, linear_backward_cuda_fused<bf16>);

/* cuBLASLt's fp8 products are faster only on Hopper and later. */
bool linear_fp8_cuda(const Ctx *ctx) {
    return ctx->dtype == BF16 && cuda_device(ctx)->hopper && op_form(ctx, OP_LINEAR, BF16) == FORM_FUSED;
}
