#include "kernels/linear/linear.h"
#include "kernels/real.h"

#include <tgmath.h>

static void add_bias(const Ctx *ctx, const stored *bias, int64_t rows, int64_t width, int64_t stride,
                     stored *y) {
    EACH (ctx, i, rows, width)
        for (int64_t c = 0; c < width; c++)
            y[i * stride + c] = store(load(y[i * stride + c]) + load(bias[c]));
}

static void add_residual(const Ctx *ctx, const stored *skip, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = store(load(y[i]) + load(skip[i]));
}

static const real SQRT_2_OVER_PI = (real)0.79788456080286535588;
static const real SQRT_1_2 = (real)0.70710678118654752440;
static const real SQRT_1_OVER_2_PI = (real)0.39894228040143267794;
static const real CUBIC = (real)0.044715;

static real gelu_tanh(real z) {
    return z / 2 * (1 + real_tanh(SQRT_2_OVER_PI * (z + CUBIC * z * z * z)));
}

static real gelu_tanh_slope(real z) {
    real t = real_tanh(SQRT_2_OVER_PI * (z + CUBIC * z * z * z));
    real inner = SQRT_2_OVER_PI * (1 + 3 * CUBIC * z * z);
    return (1 + t) / 2 + z / 2 * (1 - t * t) * inner;
}

static real gelu(real z) {
    return z / 2 * real_erfc(-z * SQRT_1_2);
}

static real gelu_slope(real z) {
    return real_erfc(-z * SQRT_1_2) / 2 + z * real_exp(-z * z / 2) * SQRT_1_OVER_2_PI;
}

#define FOR_EACH(value)                                                                                      \
    EACH_ELEMENT (ctx, i, count) y[i] = store(value);                                                        \
    return

/* One loop per activation, so that each can be vectorized. */
static void activate(const Ctx *ctx, Activation activation, const stored *pre, int64_t count, stored *y) {
    switch (activation) {
    case ACTIVATION_NONE: FOR_EACH(load(pre[i]));
    case ACTIVATION_GELU_TANH: FOR_EACH(gelu_tanh(load(pre[i])));
    case ACTIVATION_GELU: FOR_EACH(gelu(load(pre[i])));
    case ACTIVATION_RELU: FOR_EACH(load(pre[i]) > 0 ? load(pre[i]) : 0);
    case ACTIVATION_TANH: FOR_EACH(real_tanh(load(pre[i])));
    case ACTIVATION_SWIGLU: break; // not elementwise: see silu and multiply_up
    }
}

/* y = dy * activation'(pre), in place if y is dy. */
static void activation_gradient(const Ctx *ctx, Activation activation, const stored *pre, const stored *dy,
                                int64_t count, stored *y) {
    switch (activation) {
    case ACTIVATION_NONE: FOR_EACH(load(dy[i]));
    case ACTIVATION_GELU_TANH: FOR_EACH(load(dy[i]) * gelu_tanh_slope(load(pre[i])));
    case ACTIVATION_GELU: FOR_EACH(load(dy[i]) * gelu_slope(load(pre[i])));
    case ACTIVATION_RELU: FOR_EACH(load(pre[i]) > 0 ? load(dy[i]) : 0);
    case ACTIVATION_TANH: FOR_EACH(load(dy[i]) * (1 - real_tanh(load(pre[i])) * real_tanh(load(pre[i]))));
    case ACTIVATION_SWIGLU: break;
    }
}

static real silu(real z) {
    return z / (1 + real_exp(-z));
}

static real silu_slope(real z) {
    real s = 1 / (1 + real_exp(-z));
    return s * (1 + z * (1 - s));
}

/* pre is (rows, 2 * width): gate, up. */
static void silu_gate(const Ctx *ctx, const stored *pre, int64_t rows, int64_t width, stored *y) {
    EACH (ctx, i, rows, width)
#pragma omp simd
        for (int64_t c = 0; c < width; c++) y[i * width + c] = store(silu(load(pre[2 * i * width + c])));
}

static void multiply_up(const Ctx *ctx, const stored *pre, int64_t rows, int64_t width, stored *y) {
    EACH (ctx, i, rows, width)
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[i * width + c] = store(load(y[i * width + c]) * load(pre[(2 * i + 1) * width + c]));
}

static void up_gradient(const Ctx *ctx, const stored *pre, Tensor dy, stored *dpre) {
    int64_t rows = tensor_rows(dy), width = tensor_width(dy);
    EACH (ctx, i, rows, width)
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            dpre[(2 * i + 1) * width + c] =
                store(load(stored_row(dy, i)[c]) * silu(load(pre[2 * i * width + c])));
}

static void gate_gradient(const Ctx *ctx, const stored *pre, Tensor dy, stored *dpre) {
    int64_t rows = tensor_rows(dy), width = tensor_width(dy);
    EACH (ctx, i, rows, width)
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            const stored *at = pre + 2 * i * width + c; // the gate; up is at[width]
            dpre[2 * i * width + c] =
                store(load(stored_row(dy, i)[c]) * load(at[width]) * silu_slope(load(at[0])));
        }
}

/* Computes dpre from dy, which may be the first half of dpre's columns. */
static void gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre) {
    PRIMITIVE (ctx, "up gradient", ACTIVATION, torch_call("aten::mul"))
        up_gradient(ctx, pre.data, dy, dpre.data);
    PRIMITIVE_OF (ctx, ctx->pass, "SiLU gradient", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL,
                  torch_call("aten::silu_backward"), &dpre)
        gate_gradient(ctx, pre.data, dy, dpre.data);
}

static Status forward(Ctx *ctx, const LinearForward *l);

static Status gated_forward(Ctx *ctx, const LinearForward *l) {
    int64_t rows = tensor_rows(l->y), width = tensor_width(l->y);
    Tensor pre = l->pre; // (..., O)
    TRY(take_missing(ctx, ARENA_SCRATCH, "linear.pre", l->x.dtype, linear_pre_shape(l), &pre));
    LinearForward plain = linear_ungated(l, pre);
    TRY(forward(ctx, &plain));
    PRIMITIVE_OF (ctx, ctx->pass, "SiLU", CATEGORY_ACTIVATION, ARITHMETIC_EXPONENTIAL,
                  torch_call("aten::silu"), &l->y)
        silu_gate(ctx, pre.data, rows, width, l->y.data);
    PRIMITIVE (ctx, "gate multiply", ACTIVATION, torch_call("aten::mul"))
        multiply_up(ctx, pre.data, rows, width, l->y.data);
    return OK;
}

static Status forward(Ctx *ctx, const LinearForward *l) {
    if (activation_gated(l->activation)) return gated_forward(ctx, l);
    int64_t rows = tensor_rows(l->y), width = tensor_width(l->y);
    Tensor pre = tensor_empty(l->pre) ? l->y : l->pre;
    Gemm product = linear_product(l, pre, 0);
    PRIMITIVE (ctx, "product", MATRIX, linear_torch(l)) TRY(gemm(ctx, &product));
    if (!tensor_empty(l->bias))
        PRIMITIVE (ctx, "bias add", ELEMENTWISE, torch_part("aten::addmm"))
            add_bias(ctx, l->bias.data, rows, width, pre.stride, pre.data);
    if (!tensor_empty(l->skip))
        PRIMITIVE (ctx, "residual add", ELEMENTWISE, torch_call("aten::add"))
            add_residual(ctx, l->skip.data, rows * width, l->y.data);
    if (l->activation != ACTIVATION_NONE)
        PRIMITIVE_OF (ctx, ctx->pass, activation_name(l->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->activation), activation_torch(l->activation), &l->y)
            activate(ctx, l->activation, pre.data, rows * width, l->y.data);
    return OK;
}

static Status linear_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const LinearForward *l = contract;
    for (int i = 0; i < l->parts || i == 0; i++) {
        const LinearForward part = l->parts > 1 ? linear_part(l, i) : *l;
        TRY(forward(ctx, &part));
    }
    return OK;
}
SLOT(LINEAR, FORWARD, CPU, NAIVE, STORED_DTYPE, linear_forward_cpu_naive);

static void add_columns(const Ctx *ctx, const stored *x, int64_t rows, int64_t width, int64_t stride,
                        real *sum) {
#pragma omp parallel num_threads(cpu_threads(ctx)) if (rows * width >= EACH_LEAST)
    for (int64_t i = 0; i < rows; i++)
#pragma omp for simd schedule(static) nowait
        for (int64_t c = 0; c < width; c++) sum[c] += load(x[i * stride + c]);
}

/* Computes dx of a layer whose input is the output of a gated layer; dx is twice as wide as that output. */
static Status gated_input_gradient(Ctx *ctx, const LinearBackward *l, Tensor dpre) {
    Tensor first = tensor_columns(l->dx, 0, tensor_width(l->forward->x));
    Gemm product = linear_input_gradient(l, dpre, first);
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &product));
    gated_gradient(ctx, l->input->pre, first, l->dx);
    return OK;
}

static Status backward(Ctx *ctx, const LinearBackward *l) {
    const LinearForward *f = l->forward;
    int64_t rows = tensor_rows(l->dy), width = tensor_width(l->dy);
    Tensor dpre = l->dy;
    if (activation_gated(f->activation) && !l->dy_is_dpre) {
        TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, linear_pre_shape(f), &dpre));
        gated_gradient(ctx, f->pre, l->dy, dpre);
        LinearBackward rest = linear_ungated_backward(l, dpre);
        return backward(ctx, &rest);
    }
    if (f->activation != ACTIVATION_NONE && !l->dy_is_dpre) {
        TRY(take(ctx, ARENA_SCRATCH, "linear.dpre", l->dy.dtype, l->dy.shape, &dpre));
        PRIMITIVE_OF (ctx, ctx->pass, activation_gradient_name(f->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(f->activation), activation_gradient_torch(f->activation))
            activation_gradient(ctx, f->activation, f->pre.data, l->dy.data, rows * width, dpre.data);
    }
    Gemm weight_gradient = linear_weight_gradient(l, dpre);
    if (!tensor_empty(l->dweight))
        PRIMITIVE (ctx, "weight gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &weight_gradient));
    if (!tensor_empty(l->dbias))
        PRIMITIVE (ctx, "bias gradient", ELEMENTWISE, torch_call("aten::sum"))
            add_columns(ctx, dpre.data, rows, width, dpre.stride, l->dbias.data);
    if (tensor_empty(l->dx)) return OK;
    if (l->input && activation_gated(l->input->activation)) return gated_input_gradient(ctx, l, dpre);
    Gemm input_gradient = linear_input_gradient(l, dpre, l->dx);
    PRIMITIVE (ctx, "input gradient", MATRIX, torch_call("aten::mm")) TRY(gemm(ctx, &input_gradient));
    if (l->input)
        PRIMITIVE_OF (ctx, ctx->pass, activation_gradient_name(l->input->activation), CATEGORY_ACTIVATION,
                      activation_arithmetic(l->input->activation),
                      activation_gradient_torch(l->input->activation))
            activation_gradient(ctx, l->input->activation, l->input->pre.data, l->dx.data,
                                tensor_count(l->dx), l->dx.data);
    return OK;
}

static Status linear_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const LinearBackward *l = contract;
    for (int i = 0; i < l->forward->parts || i == 0; i++) {
        LinearForward f;
        const LinearBackward part = l->forward->parts > 1 ? linear_backward_part(l, i, &f) : *l;
        TRY(backward(ctx, &part));
    }
    return OK;
}
SLOT(LINEAR, BACKWARD, CPU, NAIVE, STORED_DTYPE, linear_backward_cpu_naive);
