/* accumulate: one micro-batch's gradient onto those before it.
 *
 *     sum = sum + x
 *
 * An element is added once, whatever the model has done to it in its backward pass, so that N micro-batches
 * of one rank give the bits of N ranks with one each (comm/comm.h: a sum of ranks is in rank order). */
#ifndef KERNELS_ACCUMULATE_H
#define KERNELS_ACCUMULATE_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor x;   // (N) fp32 (fp64 where everything is)
    Tensor sum; // (N) the same
} Accumulate;

CHECKED Status accumulate(Ctx *ctx, const Accumulate *a);

#ifdef __cplusplus
}
#endif
#endif
