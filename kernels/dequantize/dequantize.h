/* dequantize: the values of integers by groups (base/groups.h).
 *
 *     y[i] = scale[i / GROUP] * code[i]
 *
 * Inference only. Products whose form has no kernel for groups read y instead. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x; // (..., C) I8 or I4
    Tensor y; // (..., C) a float dtype, written
} Dequantize;

CHECKED Status dequantize_forward(Ctx *ctx, const Dequantize *d);

/* x's values in `dtype`: x itself if it is not grouped, else a tensor from scratch. */
CHECKED Status dequantize_values(Ctx *ctx, Tensor x, Dtype dtype, Tensor *values);

__END_DECLS
