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

__END_DECLS
