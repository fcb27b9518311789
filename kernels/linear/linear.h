/* linear: pre = x weight^T + bias;  y = activation(pre).  x (N, I), weight (O, I) as torch.nn.Linear stores
 * it. Without an activation y is pre, and the pre tensor stays empty; or y = pre + skip, where the layer
 * closes a branch of a residual stream, whose gradient is then dy as well. Activations:
 *     GELU       z * Phi(z) = z/2 * (1 + erf(z / sqrt(2)))            Hendrycks, Gimpel 2016, section 2: BERT
 *     GELU_TANH  z/2 * (1 + tanh(sqrt(2/pi) * (z + 0.044715 z^3)))    the same, approximated: GPT-2
 *     RELU       max(z, 0), with slope 0 at 0                         Vaswani et al. 2017, eq. 2
 *     TANH       tanh(z)                                              BERT's pooler
 * Backward: dpre = dy * activation'(pre), or dy itself where dy_is_dpre says that the layer above has done
 * it; dx = dpre weight (written, or added to what is there with `accumulate`);   dweight += dpre^T x;
 * dbias += sum over rows of dpre. Where x is the output of another linear with an activation, name that
 * layer as `input`: dx then leaves as the gradient of that layer's pre, dx = (dpre weight) *
 * activation'(input->pre), which a product's epilogue can do; such a dx is never accumulated.
 * Without `accumulate` dx may lie where x does: every form reads x for dweight before it writes dx. */
#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ACTIVATION_NONE,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU,
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_COUNT
} Activation;

typedef struct {
    Tensor x;      // (..., I)
    Tensor weight; // (O, I)
    Tensor bias;   // (O); may be empty
    Tensor skip;   // (..., O); empty with an activation or parts. y may not lie where skip does
    Tensor pre;    // (..., O): saved input of the activation; empty without one, or when not training
    Tensor y;      // (..., O); fp32 allowed with bf16 inputs where bias and activation are absent (logits)
    Activation activation;
    int parts; // weight is this many layers of the same size, one below the other: the naive form runs each
               // for itself, as frameworks run queries, keys and values; 0 or 1: it is one layer
} LinearForward;

typedef struct {
    const LinearForward *forward;
    const LinearForward *input; // the activated layer that made x, or NULL
    Tensor dy;                  // (..., O)
    bool dy_is_dpre;
    Tensor dx;       // (..., I); may be empty
    bool accumulate; // dx += instead of dx =
    Tensor dweight;  // (O, I) fp32, +=
    Tensor dbias;    // (O) fp32, +=; empty where bias is, or where another operation sums dpre
} LinearBackward;

CHECKED Status linear_forward(Ctx *ctx, const LinearForward *l);
CHECKED Status linear_backward(Ctx *ctx, const LinearBackward *l);

/* One of the layers of a contract with parts: views of its rows of the weight and columns of y; and of its
 * backward pass, where the first part writes dx (or adds to it, as asked) and the others add. */
LinearForward linear_part(const LinearForward *l, int part);
LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward);

/* What the profile calls an activation and its gradient: "GELU", "GELU gradient", ... */
const char *activation_name(Activation activation);
const char *activation_gradient_name(Activation activation);

#ifdef __cplusplus
}
#endif
#endif
