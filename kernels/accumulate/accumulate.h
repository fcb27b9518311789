/* accumulate: one micro-batch's gradient onto those before it.
 *
 *     sum = sum + x
 *
 * An element is added once, whatever the model has done to it in its backward pass, so that N micro-batches
 * of one rank give the bits of N ranks with one each (comm/comm.h: a sum of ranks is in rank order). */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x;   // (N) fp32 (fp64 where everything is)
    Tensor sum; // (N) the same
} Accumulate;

CHECKED Status accumulate(Ctx *ctx, const Accumulate *a);

/* Whether products do it: CUDA's add to C once, all of their sum (OpenBLAS adds part after part), so what a
 * backward pass adds to once has the same bits without a sum of its own. */
bool accumulates_in_products(const Ctx *ctx);

__END_DECLS
