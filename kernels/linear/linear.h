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
 * SWIGLU is gated: the first half of pre's columns is the gate, the second is up, and y is half as wide as
 * pre.
 *
 * Backward:
 *
 *     dpre     = dy * activation'(pre)          or dy itself with `dy_is_dpre`
 *     dx       = dpre weight                    written, or += with `accumulate`
 *     dweight += dpre^T x
 *     dbias   += sum over rows of dpre
 *
 * where the dpre of a gated layer is, side by side,
 *
 *     dgate    = dy * up * silu'(gate)
 *     dup      = dy * silu(gate)
 *
 * dy is the gradient of skip too. Where x is the output of another linear layer with an activation, name that
 * layer as `input`, and dx is made the gradient of its pre, which the product's epilogue can do:
 *
 *     dx = (dpre weight) * activation'(input->pre)
 *
 * That layer's own backward pass is then told dy_is_dpre. Where it is gated, dx is its dgate and dup, twice
 * as wide as x. Without `accumulate` a dx as wide as x may lie where x does: every form reads x for dweight
 * before it writes dx. The weights' gradients may have a pass of their own: without dweight there is dx alone,
 * without dx there are dweight and dbias. Where a contract `lasts`, ctx->puts_off may leave them to a later
 * one.
 *
 * With `fp8`, and under --fused=fp8, products read x, weight and dpre rounded to e4m3 (kernels/cast/cast.h), in the
 * forward pass and in both gradients; dbias sums dpre as it is. Where the GPU multiplies e4m3, a layer that `may_defer`
 * leaves its activation, and the slope, to the casts that read them: y then has a shape and no memory, and its reader's
 * backward pass returns the gradient of y. The caller gives `dy_is_dpre` and `input` as ever.
 *
 * A weight by groups stands for its values (kernels/dequantize). For a few rows the CPU's fused form also rounds x to 8
 * bits by groups, so that it multiplies integers; every other form makes the values first. */
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

/* Made of two halves of pre, not element by element. */
static inline bool activation_gated(Activation activation) {
    return activation == ACTIVATION_SWIGLU;
}

/* A product in 8 bits reads these operands: they are the rows of `scales` and `seen`. */
typedef enum { OPERAND_X, OPERAND_WEIGHT, OPERAND_DPRE, OPERANDS } Operand;

/* Up to here reading the weights is the whole cost, and forms may have kernels of their own. */
enum { LINEAR_FEW_ROWS = 4 };

/* All have one dtype, but for a weight by groups (base/groups.h), which is for inference, and the logits: y may be fp32
 * where x is bf16, without bias, activation and skip. */
typedef struct LinearForward {
    Tensor x;      // (..., I)
    Tensor weight; // (O, I)
    Tensor bias;   // (O); may be empty
    Tensor skip;   // (..., O); empty with an activation or parts. y may not lie where skip does
    Tensor pre;    // (..., O): read by the backward pass; empty without an activation
    Tensor y;      // (..., O); gated: (..., O/2)
    Activation activation;
    int64_t asked; // the first outputs, which somebody asked for; the others are padding and no work. 0: all
    int parts; // weight is this many layers of the same size, one below the other: the naive form runs each
               // for itself, as frameworks run queries, keys and values; 0 or 1: it is one layer
    const struct LinearForward *input; // the activated layer that made x, or NULL
    bool fp8;      // its products may be of 8 bits; what has an activation is then told dy_is_dpre
    Tensor scales; // (OPERANDS) fp32: those of the step before (cast.h, `given`); may be empty
    Tensor seen;   // (OPERANDS, CAST_SEEN) fp32: what casts leave for the next step; may be empty
    bool
        may_defer; // y is read by one layer alone, which has fp8, is as wide as x and names this one as input
    bool deferred; // set by linear_forward: the activation has been left to that layer
    Cast x8; // filled by linear_forward where the GPU multiplies e4m3: the backward pass reads t and scale
    Cast
        weight8; // the same; training may give it, of linear_cast_weight, for as long as the weight stays as it is
    bool casts_input; // said by linear.c to a form: x8 is still to be made, of input->pre
} LinearForward;

typedef struct {
    const LinearForward *forward;
    const LinearForward *input; // the activated layer that made x, or NULL
    Tensor dy;                  // (..., O); gated: (..., O/2), unless it is dpre
    bool dy_is_dpre;
    Tensor dx;       // (..., I), or (..., 2*I) where `input` is gated; may be empty
    bool accumulate; // dx += instead of dx =; not with `input`
    Tensor dweight;  // (O, I) fp32, +=; may be empty, and then dbias is
    Tensor dbias;    // (O) fp32, +=; empty where bias is, or where another operation sums dpre
    bool lasts;      // x and dy stay as they are until the pass is over, and dy is dpre
    Cast dy8;        // filled by linear_backward: dy as the products read it; empty: as it is
} LinearBackward;

/* y, and where an activation is trained pre, are taken from `saved` where they are empty. */
CHECKED Status linear_forward(Ctx *ctx, LinearForward *l, ArenaKind saved);
CHECKED Status linear_backward(Ctx *ctx, const LinearBackward *l);

/* Casts the weight of a layer with `fp8` into y, t and scale of `weight8`, which then goes into contracts of training.
 * Those that multiply their operands in their own dtype round the weight themselves. */
CHECKED Status linear_cast_weight(Ctx *ctx, const LinearForward *l, Cast *weight8);

/* Memory for the dx of the layer that reads this activated one's y, from scratch where it cannot lie where y does. */
CHECKED Status linear_take_gradient(Ctx *ctx, const LinearForward *l, Tensor *gradient);

/* Whether --fused=fp8 multiplies bytes here. Else operands are rounded to e4m3 and multiplied in their own dtype, which
 * says the same but for the order and the width of the sums. */
bool linear_multiplies_fp8(const Ctx *ctx);
__attribute__((weak)) bool linear_fp8_cuda(const Ctx *ctx); // CUDA's part of the answer

/* The products of a contract, of its operands in 8 bits where it has them. `dpre` is what has become of dy. */
Gemm linear_product(const LinearForward *l, Tensor y, double beta);
Gemm linear_input_gradient(const LinearBackward *l, Tensor dpre, Tensor dx);
Gemm linear_weight_gradient(const LinearBackward *l, Tensor dpre);

/* One of the layers of a contract with parts: views of its rows of the weight and columns of y. */
LinearForward linear_part(const LinearForward *l, int part);
/* Of its backward pass: the first part writes dx (or adds to it, as asked) and the others add. `forward` is
 * where the part's forward contract is put, which the result points to. */
LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward);

/* Of a gated layer the plain one that makes pre: what a form runs before its gate. */
LinearForward linear_ungated(const LinearForward *l, Tensor pre);
/* And what is left of its backward pass once dpre, (..., O), is there. */
LinearBackward linear_ungated_backward(const LinearBackward *l, Tensor dpre);
/* (..., O): what dpre and a pre that nobody saves are taken as. */
Shape linear_pre_shape(const LinearForward *l);

/* What the profile calls an activation and its gradient: "GELU", "GELU gradient", ... */
const char *activation_name(Activation activation);
const char *activation_gradient_name(Activation activation);
Arithmetic activation_arithmetic(Activation activation);
/* And PyTorch; linear_torch: the naive form's product, to which the bias is added there. */
TorchName activation_torch(Activation activation);
TorchName activation_gradient_torch(Activation activation);
TorchName linear_torch(const LinearForward *l);

__END_DECLS
