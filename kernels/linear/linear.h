/* linear: a linear layer with its bias, and the activation or the residual add that follows it. weight is as
 * torch.nn.Linear stores it.
 *
 *     pre = x weight^T + bias
 *     y = activation(pre)         or, without an activation,
 *     y = pre + skip
 *
 *     GELU       z * Phi(z) = z/2 * (1 + erf(z / sqrt(2)))            Hendrycks, Gimpel 2016, section 2: BERT
 *     GELU_TANH  z/2 * (1 + tanh(sqrt(2/pi) * (z + 0.044715 z^3)))    the same, approximated: GPT-2
 *     RELU       max(z, 0), with slope 0 at 0                         Vaswani et al. 2017, eq. 2
 *     TANH       tanh(z)                                              BERT's pooler
 *     SWIGLU     silu(gate) * up, silu(z) = z / (1 + exp(-z))         Shazeer 2020, eq. 6: Llama
 *
 * SWIGLU is gated: the first half of pre's columns is the gate, the second half is up, and y is half as wide
 * as pre.
 *
 * Backward:
 *
 *     dpre     = dy * activation'(pre)          or dy itself with `dy_is_dpre`
 *     dx       = dpre weight                    written, or += with `accumulate`
 *     dweight += dpre^T x
 *     dbias   += sum over rows of dpre
 *
 * The dpre of a gated layer consists of two halves, side by side:
 *
 *     dgate    = dy * up * silu'(gate)
 *     dup      = dy * silu(gate)
 *
 * dy is also the gradient of skip. If x is the output of another linear layer with an activation, that layer
 * can be named as `input`; dx is then the gradient of its pre, which the product's epilogue can compute:
 *
 *     dx = (dpre weight) * activation'(input->pre)
 *
 * The backward pass of the input layer then gets dy_is_dpre. If that layer is gated, dx is its dgate and dup,
 * twice as wide as x. Without `accumulate`, a dx as wide as x may share memory with x: every form reads x for
 * dweight before it writes dx. Weight gradients may have a pass of their own: without dweight only dx is
 * computed, without dx only dweight and dbias. If a contract `lasts`, ctx->defers may defer them.
 *
 * With `fp8`, and under --fused=fp8, products read x, weight and dpre rounded to e4m3 (kernels/cast/cast.h)
 * in the forward pass and in both gradients; dbias sums the unrounded dpre. Where the GPU multiplies e4m3, a
 * layer that `may_defer` defers its activation, and its derivative, to the casts that read them: y then has a
 * shape but no memory, and the backward pass of y's reader returns the gradient of y. The caller sets
 * `dy_is_dpre` and `input` as usual.
 *
 * A weight quantized by groups stands for its values (kernels/dequantize). For up to LINEAR_CODED_ROWS the
 * fused form of the CPU also quantizes x to 8 bits by groups and multiplies integers; every other form
 * dequantizes first. */
#pragma once

#include "kernels/cast/cast.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/gemm/gemm.h"

__BEGIN_DECLS

typedef enum {
    ACTIVATION_NONE,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU,
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_SWIGLU,
} Activation;

#define ACTIVATION_COUNT (ACTIVATION_SWIGLU + 1)

/* Whether each output combines two halves of pre, instead of being elementwise. */
static inline bool activation_gated(Activation activation) {
    return activation == ACTIVATION_SWIGLU;
}

/* FLOPs of an activation, or of its derivative, for each of its outputs; a transcendental function is one. */
double activation_flops(Activation activation, Pass pass);

/* Operands that a product in 8 bits reads; they index the rows of `scales` and `seen`. */
typedef enum { OPERAND_X, OPERAND_WEIGHT, OPERAND_DPRE, OPERANDS } Operand;

/* Up to this many rows, reading the weights is the whole cost, and forms may have special kernels. */
enum { LINEAR_FEW_ROWS = 4 };
/* Up to this many rows a CPU multiplies the codes of quantized weights. For more it dequantizes them. */
enum { LINEAR_CODED_ROWS = 32 };

/* All have the same dtype, except weights quantized by groups (base/groups.h), for inference only, and
 * logits: y may be fp32 with a bf16 x, without bias, activation and skip. */
typedef struct LinearForward {
    Tensor x;      // (..., I)
    Tensor weight; // (O, I)
    Tensor bias;   // (O); may be empty
    Tensor skip;   // (..., O); empty with an activation or parts. y must not share memory with skip
    Tensor pre;    // (..., O): saved for the backward pass; empty without an activation
    Tensor y;      // (..., O); gated: (..., O/2)
    Activation activation;
    int64_t asked; // the number of outputs needed; the others are padding and are not counted as work. 0: all
    int parts; // weight is this many layers of the same size, stacked: the naive form runs each separately,
               // as frameworks run queries, keys and values; 0 or 1: it is one layer
    const struct LinearForward *input; // the activated layer that computed x, or NULL
    bool fp8;       // products may run in 8 bits; if it has an activation, its backward pass gets dy_is_dpre
    Tensor scales;  // (OPERANDS) fp32: scales from the previous step (cast.h, `given`); may be empty
    Tensor seen;    // (OPERANDS, CAST_SEEN) fp32: maxima that casts record for the next step; may be empty
    bool may_defer; // y has only one reader: a layer with fp8, as wide as x, that names this layer as input
    bool deferred;  // set by linear_forward: the activation is deferred to that layer
    Cast x8;        // set by linear_forward if the GPU multiplies e4m3: the backward pass reads t and scale
    Cast weight8;   // set likewise; training may pass the result of linear_cast_weight, as long as the weight
                    // is unchanged
    bool casts_input; // set by linear.c for a form: x8 must still be computed, from input->pre
} LinearForward;

typedef struct {
    const LinearForward *forward;
    const LinearForward *input; // the activated layer that computed x, or NULL
    Tensor dy;                  // (..., O); gated: (..., O/2), unless it is dpre
    bool dy_is_dpre;
    Tensor dx;       // (..., I), or (..., 2*I) if `input` is gated; may be empty
    bool accumulate; // dx += instead of dx =; not with `input`
    Tensor dweight;  // (O, I) fp32, +=; may be empty together with dbias
    Tensor dbias;    // (O) fp32, +=; empty if bias is, or if another operation sums dpre
    bool lasts;      // x and dy stay valid until the pass ends, and dy is dpre
    Cast dy8;        // set by linear_backward: dy as the products read it; empty: unchanged
} LinearBackward;

/* If they are empty, y, and pre if an activation is trained, are allocated from `saved`. */
CHECKED Status linear_forward(Ctx *ctx, LinearForward *l, ArenaKind saved);
CHECKED Status linear_backward(Ctx *ctx, const LinearBackward *l);

/* Casts the weight of a layer with `fp8` into y, t and scale of `weight8`, which training then passes in its
 * contracts. Devices that multiply in the operands' own dtype round the weight themselves. */
CHECKED Status linear_cast_weight(Ctx *ctx, const LinearForward *l, Cast *weight8);

/* Allocates the dx of the layer that reads this activated layer's y: in y's memory, or from scratch if it
 * does not fit there. */
CHECKED Status linear_take_gradient(Ctx *ctx, const LinearForward *l, Tensor *gradient);

/* Whether --fused=fp8 multiplies bytes here. Otherwise operands are rounded to e4m3 and multiplied in their
 * own dtype, with the same result except for the order and width of the sums. */
bool linear_multiplies_fp8(const Ctx *ctx);
__attribute__((weak)) bool linear_fp8_cuda(const Ctx *ctx); // CUDA's part of the answer

/* The products of a contract, on 8-bit operands if it has them. `dpre` is dy after the activation's
 * gradient. */
Gemm linear_product(const LinearForward *l, Tensor y, double beta);
Gemm linear_input_gradient(const LinearBackward *l, Tensor dpre, Tensor dx);
Gemm linear_weight_gradient(const LinearBackward *l, Tensor dpre);

/* One layer of a contract with parts, as views of its rows of the weight and columns of y. */
LinearForward linear_part(const LinearForward *l, int part);
/* The backward pass of that layer: the first part writes dx (or accumulates, if requested) and the others
 * accumulate. `forward` receives the part's forward contract, to which the result points. */
LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward);

/* The plain layer that computes pre of a gated layer; a form runs it before the gate. */
LinearForward linear_ungated(const LinearForward *l, Tensor pre);
/* The rest of the gated layer's backward pass, once dpre, (..., O), is computed. */
LinearBackward linear_ungated_backward(const LinearBackward *l, Tensor dpre);
/* (..., O): the shape of dpre, and of a pre that is not saved. */
Shape linear_pre_shape(const LinearForward *l);

/* An activation's name in profiles, and its gradient's: "GELU", "GELU gradient", ... */
const char *activation_name(Activation activation);
const char *activation_gradient_name(Activation activation);
Arithmetic activation_arithmetic(Activation activation);
/* The names of PyTorch's operators. linear_torch: that of the naive form's product, which in PyTorch includes
 * the bias. */
TorchName activation_torch(Activation activation);
TorchName activation_gradient_torch(Activation activation);
TorchName linear_torch(const LinearForward *l);

__END_DECLS
