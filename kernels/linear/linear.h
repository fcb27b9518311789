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
 *
 * Backward:
 *
 *     dpre     = dy * activation'(pre)          or dy itself with `dy_is_dpre`
 *     dx       = dpre weight                    written, or += with `accumulate`
 *     dweight += dpre^T x
 *     dbias   += sum over rows of dpre
 *
 * dy is the gradient of skip too. Where x is the output of another linear layer with an activation, name that
 * layer as `input`, and dx is made the gradient of its pre, which the product's epilogue can do:
 *
 *     dx = (dpre weight) * activation'(input->pre)
 *
 * That layer's own backward pass is then told dy_is_dpre. Without `accumulate` dx may lie where x does: every
 * form reads x for dweight before it writes dx. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef enum {
    ACTIVATION_NONE,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU,
    ACTIVATION_RELU,
    ACTIVATION_TANH,
} Activation;

#define ACTIVATION_COUNT (ACTIVATION_TANH + 1)

/* All have one dtype, but for the logits: y may be fp32 where x is bf16, without bias, activation and
 * skip. */
typedef struct {
    Tensor x;      // (..., I)
    Tensor weight; // (O, I)
    Tensor bias;   // (O); may be empty
    Tensor skip;   // (..., O); empty with an activation or parts. y may not lie where skip does
    Tensor pre;    // (..., O): read by the backward pass; empty without an activation
    Tensor y;      // (..., O)
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
    bool accumulate; // dx += instead of dx =; not with `input`
    Tensor dweight;  // (O, I) fp32, +=
    Tensor dbias;    // (O) fp32, +=; empty where bias is, or where another operation sums dpre
} LinearBackward;

/* y, and where an activation is trained pre, are taken from `saved` where they are empty. */
CHECKED Status linear_forward(Ctx *ctx, LinearForward *l, ArenaKind saved);
CHECKED Status linear_backward(Ctx *ctx, const LinearBackward *l);

/* One of the layers of a contract with parts: views of its rows of the weight and columns of y. */
LinearForward linear_part(const LinearForward *l, int part);
/* Of its backward pass: the first part writes dx (or adds to it, as asked) and the others add. `forward` is
 * where the part's forward contract is put, which the result points to. */
LinearBackward linear_backward_part(const LinearBackward *l, int part, LinearForward *forward);

/* What the profile calls an activation and its gradient: "GELU", "GELU gradient", ... */
const char *activation_name(Activation activation);
const char *activation_gradient_name(Activation activation);

__END_DECLS
