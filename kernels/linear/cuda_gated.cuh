/* cuda_gated: the activation of a gated layer (linear.h) and its gradient, in one pass each. */
#pragma once

#include "kernels/linear/linear.h"

/* y = silu(gate) * up, from pre (..., 2 * width of y), dense. */
CHECKED Status gated_output(Ctx *ctx, Tensor pre, Tensor y);
/* Computes dpre, shaped as pre, from dy, which may be the first half of dpre's columns. */
CHECKED Status gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre);
