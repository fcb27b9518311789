/* columns: column sums of a matrix in a fixed order, for naive gradients of biases and norm weights. */
#pragma once

#include "kernels/op.h"

/* Takes the scratch that columns_add needs for x. */
CHECKED Status columns_take(Ctx *ctx, Tensor x, Tensor *partials);

/* sum[c] += sum over rows of x[row, c] x (..., C), fp32 or bf16, whose rows may have a stride; sum (C)
 * fp32. */
CHECKED Status columns_add(Ctx *ctx, Tensor x, Tensor partials, Tensor sum);

/* The same over the rows with kinds[row] == kind. kinds (rows) i32; if empty, all rows are of kind 0. */
CHECKED Status columns_add_kind(Ctx *ctx, Tensor x, Tensor kinds, int kind, Tensor partials, Tensor sum);
