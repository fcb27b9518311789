/* accumulate: adds a micro-batch's gradient to the sum of the previous ones.
 *
 *     sum = sum + x
 *
 * Each element is added once per micro-batch, after the backward pass has finished it. So N micro-batches
 * on one rank give the bits of N ranks with one each (comm/comm.h adds ranks in rank order). */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x;   // (N) fp32 (fp64 in fp64)
    Tensor sum; // (N) the same
} Accumulate;

CHECKED Status accumulate(Ctx *ctx, const Accumulate *a);

/* Whether products add to the sum directly. A CUDA product adds its complete sum to C once, which gives
 * the same bits as a separate addition. (OpenBLAS adds partial sums.) */
bool accumulates_in_products(const Ctx *ctx);

__END_DECLS
