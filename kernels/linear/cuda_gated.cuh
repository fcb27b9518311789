/* cuda_gated: what follows a gated layer's product (linear.h), in one pass. */
#pragma once

#include "kernels/linear/linear.h"

/* y = silu(gate) * up, from pre (..., 2 * width of y), dense. */
CHECKED Status gated_output(Ctx *ctx, Tensor pre, Tensor y);
/* dpre, shaped as pre, of dy, which may be the first half of dpre's columns. */
CHECKED Status gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre);
