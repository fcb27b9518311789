/* squared_relu: So et al. 2021, "Primer: searching for efficient transformers", section 4.
 *
 *     y  = max(x, 0)^2
 *     dx = 2 max(x, 0) dy        written
 *
 * All tensors have one dtype. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x; // (..., C)
    Tensor y; // (..., C)
} SquaredReluForward;

typedef struct {
    const SquaredReluForward *forward;
    Tensor dy; // (..., C)
    Tensor dx; // (..., C)
} SquaredReluBackward;

CHECKED Status squared_relu_forward(Ctx *ctx, const SquaredReluForward *s);
CHECKED Status squared_relu_backward(Ctx *ctx, const SquaredReluBackward *s);

__END_DECLS
