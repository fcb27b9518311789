/* linear as eager frameworks run it: a product, then one kernel for the bias and one for the activation. */
#include "kernels/linear/linear.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/linear/cuda_activation.cuh"

/* Reads and writes y, whose rows may have gaps. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 30 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into the product's epilogue, as the fused form does. */
template <class T, int N>
static __global__ void add_bias(const T *bias, int64_t count, int64_t width, int64_t stride, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, column = i - row * width;
        float sum[N], b[N];
        load_floats(y + row * stride + column, sum);
        load_floats(bias + column, b);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += b[e];
        store_floats(y + row * stride + column, sum);
    }
}

template <Activation A>
static __device__ float value(float z) {
    if constexpr (A == ACTIVATION_GELU_TANH)
        return 0.5f * z * (1.0f + tanhf(SQRT_2_OVER_PI * (z + CUBIC * z * z * z)));
    return activated<A>(z);
}

template <Activation A>
static __device__ float slope(float z) {
    if constexpr (A == ACTIVATION_GELU_TANH) {
        float t = tanhf(SQRT_2_OVER_PI * (z + CUBIC * z * z * z));
        return 0.5f * (1.0f + t) + 0.5f * z * (1.0f - t * t) * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * z * z);
    }
    return slope_of<A>(z);
}

/* Reads pre, writes y. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 13 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into the product's epilogue, as the fused form does. */
template <class T, int N, Activation A>
static __global__ void activate(const T *pre, int64_t count, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float z[N];
        load_floats(pre + i, z);
#pragma unroll
        for (int e = 0; e < N; e++) z[e] = value<A>(z[e]);
        store_floats(y + i, z);
    }
}

/* dpre = dy * activation'(pre), in place if dpre is dy. Reads pre and dy, writes dpre. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 13 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into the epilogue of the product that makes dy, as the fused form does. */
template <class T, int N, Activation A>
static __global__ void activation_gradient(const T *pre, const T *dy, int64_t count, T *dpre) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float z[N], gradient[N];
        load_floats(pre + i, z);
        load_floats(dy + i, gradient);
#pragma unroll
        for (int e = 0; e < N; e++) gradient[e] *= slope<A>(z[e]);
        store_floats(dpre + i, gradient);
    }
}

/* y = silu(gate), of pre (rows, 2 * width) = (gate, up) */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 21 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into the product's epilogue, as the fused form does. */
template <class T, int N>
static __global__ void silu_gate(const T *pre, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float z[N];
        load_floats(pre + i + i / width * width, z);
#pragma unroll
        for (int e = 0; e < N; e++) z[e] = z[e] / (1.0f + expf(-z[e]));
        store_floats(y + i, z);
    }
}

/* y *= up */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 20 to 32 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: into the product's epilogue, as the fused form does. */
template <class T, int N>
static __global__ void multiply_up(const T *pre, int64_t count, int64_t width, T *y) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float up[N], product[N];
        load_floats(pre + i + (i / width + 1) * width, up);
        load_floats(y + i, product);
#pragma unroll
        for (int e = 0; e < N; e++) product[e] *= up[e];
        store_floats(y + i, product);
    }
}

/* dup = dy * silu(gate): the second half of dpre's columns. dy's rows have a stride. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 22 to 42 registers, no shared memory. Occupancy: registers; 62 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: into the epilogue of the product that makes dy, as the fused form does. */
template <class T, int N>
static __global__ void up_gradient(const T *pre, const T *dy, int64_t stride, int64_t count, int64_t width,
                                   T *dpre) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, c = i - row * width, at = 2 * row * width + c;
        float z[N], d[N];
        load_floats(pre + at, z);
        load_floats(dy + row * stride + c, d);
#pragma unroll
        for (int e = 0; e < N; e++) d[e] *= z[e] / (1.0f + expf(-z[e]));
        store_floats(dpre + at + width, d);
    }
}

/* dgate = dy * up * silu'(gate): the first half of dpre's columns, which may share memory with dy. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 22 to 43 registers, no shared memory. Occupancy: registers; 62 to
 * 100% of the warps. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs:
 * none. Fusion: into the epilogue of the product that makes dy, as the fused form does. */
template <class T, int N>
static __global__ void gate_gradient(const T *pre, const T *dy, int64_t stride, int64_t count, int64_t width,
                                     T *dpre) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        int64_t row = i / width, c = i - row * width, at = 2 * row * width + c;
        float z[N], up[N], d[N];
        load_floats(pre + at, z);
        load_floats(pre + at + width, up);
        load_floats(dy + row * stride + c, d);
#pragma unroll
        for (int e = 0; e < N; e++) {
            float s = 1.0f / (1.0f + expf(-z[e]));
            d[e] *= up[e] * s * (1.0f + z[e] * (1.0f - s));
        }
        store_floats(dpre + at, d);
    }
}

template <class T>
static Status launch_activation(Ctx *ctx, Activation activation, Tensor pre, Tensor y) {
    int64_t count = tensor_count(y);
    bool packed = walks_in_packs(VECTOR<T>, {count}, {pre.data, y.data});
    int blocks = grid_stride_blocks(ctx, divide_up(count, packed ? VECTOR<T> : 1), 256);
    DISPATCH_ACTIVATION(activation, A,
                        DISPATCH_PACK(packed, T, N,
                                      return (LAUNCH(ctx, (activate<T, N, A>), blocks, 256, 0,
                                                     data_of<T>(pre), count, data_of<T>(y)))));
    return fail(ERROR_INTERNAL, "linear: an unknown activation");
}

template <class T>
static Status launch_gradient(Ctx *ctx, Activation activation, Tensor pre, Tensor dy, Tensor dpre) {
    int64_t count = tensor_count(dy);
    bool packed = walks_in_packs(VECTOR<T>, {count}, {pre.data, dy.data, dpre.data});
    int blocks = grid_stride_blocks(ctx, divide_up(count, packed ? VECTOR<T> : 1), 256);
    DISPATCH_ACTIVATION(
        activation, A,
        DISPATCH_PACK(packed, T, N,
                      return (LAUNCH(ctx, (activation_gradient<T, N, A>), blocks, 256, 0, data_of<T>(pre),
                                     data_of<T>(dy), count, data_of<T>(dpre)))));
    return fail(ERROR_INTERNAL, "linear: an unknown activation");
}

/* Computes dpre from dy, which may be the first half of dpre's columns. */
template <class T>
static Status gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre) {
    int64_t count = tensor_count(dy), width = tensor_width(dy);
    bool packed = walks_in_packs(VECTOR<T>, {width, dy.stride}, {pre.data, dy.data, dpre.data});
    PRIMITIVE (ctx, "up gradient", ACTIVATION, torch_call("aten::mul"))
        TRY(LAUNCH_ELEMENTS(ctx, up_gradient, T, packed, count, data_of<T>(pre), data_of<T>(dy), dy.stride,
                            count, width, data_of<T>(dpre)));
    PRIMITIVE_OF (ctx, ctx->pass, "SiLU gradient", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL,
                  torch_call("aten::silu_backward"), &dpre)
        TRY(LAUNCH_ELEMENTS(ctx, gate_gradient, T, packed, count, data_of<T>(pre), data_of<T>(dy), dy.stride,
                            count, width, data_of<T>(dpre)));
    return OK;
}

template <class T>
static Status forward(Ctx *ctx, const LinearForward *l);

template <class T>
static Status gated_forward(Ctx *ctx, const LinearForward *l) {
    int64_t count = tensor_count(l->y), width = tensor_width(l->y);
    Tensor pre = l->pre; // (..., O)
    TRY(take_missing(ctx, ARENA_SCRATCH, "linear.pre", l->x.dtype, linear_pre_shape(l), &pre));
    const LinearForward plain = linear_ungated(l, pre);
    TRY(forward<T>(ctx, &plain));
    bool packed = walks_in_packs(VECTOR<T>, {width}, {pre.data, l->y.data});
    PRIMITIVE_OF (ctx, ctx->pass, "SiLU", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL,
                  torch_call("aten::silu"), &l->y)
        TRY(LAUNCH_ELEMENTS(ctx, silu_gate, T, packed, count, data_of<T>(pre), count, width,
                            data_of<T>(l->y)));
    PRIMITIVE (ctx, "gate multiply", ACTIVATION, torch_call("aten::mul"))
        TRY(LAUNCH_ELEMENTS(ctx, multiply_up, T, packed, count, data_of<T>(pre), count, width,
                            data_of<T>(l->y)));
    return OK;
}

template <class T>
static Status forward(Ctx *ctx, const LinearForward *l) {
    if (activation_gated(l->activation)) return gated_forward<T>(ctx, l);
    int64_t count = tensor_count(l->y), width = tensor_width(l->y);
    Tensor pre = tensor_empty(l->pre) ? l->y : l->pre;
    Gemm product = linear_product(l, pre, 0);
    PRIMITIVE (ctx, "product", MATRIX, linear_torch(l)) TRY(gemm(ctx, &product));
    if (!tensor_empty(l->bias)) {
        bool packed = walks_in_packs(VECTOR<T>, {width, pre.stride}, {l->bias.data, pre.data});
        PRIMITIVE (ctx, "bias add", ELEMENTWISE, torch_part("aten::addmm"))
            TRY(LAUNCH_ELEMENTS(ctx, add_bias, T, packed, count, data_of<T>(l->bias), count, width,
                                pre.stride, data_of<T>(pre)));
    }
    if (!tensor_empty(l->skip)) {
        bool packed = walks_in_packs(VECTOR<T>, {count}, {l->skip.data, l->y.data});
        PRIMITIVE (ctx, "residual add", ELEMENTWISE, torch_call("aten::add"))
            TRY(LAUNCH_ELEMENTS(ctx, add_elements, T, packed, count, data_of<T>(l->y), data_of<T>(l->skip),
                                count, data_of<T>(l->y)));
    }
    if (l->activation != ACTIVATION_NONE)
        PRIMITIVE_OF (ctx, ctx->pass, activation_name(l->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->activation), activation_torch(l->activation), &l->y)
            TRY(launch_activation<T>(ctx, l->activation, pre, l->y));
    return OK;
}

template <class T>
static Status linear_forward_cuda_naive(Ctx *ctx, const void *contract) {
    const LinearForward *l = static_cast<const LinearForward *>(contract);
    for (int i = 0; i < l->parts || i == 0; i++) {
        const LinearForward part = l->parts > 1 ? linear_part(l, i) : *l;
        TRY(forward<T>(ctx, &part));
    }
    return OK;
}
SLOT(LINEAR, FORWARD, CUDA, NAIVE, F32, linear_forward_cuda_naive<float>);
SLOT(LINEAR, FORWARD, CUDA, NAIVE, BF16, linear_forward_cuda_naive<bf16>);

/* Computes dx of a layer whose input is the output of a gated layer; dx is twice as wide as that output. */
template <class T>
static Status gated_input_gradient(Ctx *ctx, const LinearBackward *l, Tensor dpre) {
    Tensor first = tensor_columns(l->dx, 0, tensor_width(l->forward->x));
    Gemm product = linear_input_gradient(l, dpre, first);
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    return gated_gradient<T>(ctx, l->input->pre, first, l->dx);
}

template <class T>
static Status backward(Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    Tensor dpre = l->dy, partials;
    if (activation_gated(f->activation) && !l->dy_is_dpre) {
        TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, linear_pre_shape(f), &dpre));
        TRY(gated_gradient<T>(ctx, f->pre, l->dy, dpre));
        const LinearBackward rest = linear_ungated_backward(l, dpre);
        return backward<T>(ctx, &rest);
    }
    if (f->activation != ACTIVATION_NONE && !l->dy_is_dpre) {
        TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, l->dy.shape, &dpre));
        PRIMITIVE_OF (ctx, ctx->pass, activation_gradient_name(f->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(f->activation), activation_gradient_torch(f->activation))
            TRY(launch_gradient<T>(ctx, f->activation, f->pre, l->dy, dpre));
    }
    Gemm weight_gradient = linear_weight_gradient(l, dpre);
    if (!tensor_empty(l->dweight))
        PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &weight_gradient));
    if (!tensor_empty(l->dbias)) {
        TRY(columns_take(ctx, dpre, &partials));
        PRIMITIVE (ctx, "bias gradient", ELEMENTWISE, torch_call("aten::sum"))
            TRY(columns_add(ctx, dpre, partials, l->dbias));
    }
    if (tensor_empty(l->dx)) return OK;
    if (l->input && activation_gated(l->input->activation)) return gated_input_gradient<T>(ctx, l, dpre);
    Gemm input_gradient = linear_input_gradient(l, dpre, l->dx);
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &input_gradient));
    if (l->input)
        PRIMITIVE_OF (ctx, ctx->pass, activation_gradient_name(l->input->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->input->activation),
                      activation_gradient_torch(l->input->activation))
            TRY(launch_gradient<T>(ctx, l->input->activation, l->input->pre, l->dx, l->dx));
    return OK;
}

template <class T>
static Status linear_backward_cuda_naive(Ctx *ctx, const void *contract) {
    const LinearBackward *l = static_cast<const LinearBackward *>(contract);
    for (int i = 0; i < l->forward->parts || i == 0; i++) {
        LinearForward f;
        const LinearBackward part = l->forward->parts > 1 ? linear_backward_part(l, i, &f) : *l;
        TRY(backward<T>(ctx, &part));
    }
    return OK;
}
SLOT(LINEAR, BACKWARD, CUDA, NAIVE, F32, linear_backward_cuda_naive<float>);
SLOT(LINEAR, BACKWARD, CUDA, NAIVE, BF16, linear_backward_cuda_naive<bf16>);
