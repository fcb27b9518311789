/* gather: y[m,:] = x[rows[m],:], and zeros where rows[m] is -1.
 * Backward: dx = 0, but dx[rows[m],:] = dy[m,:]. dx is written. Rows other than -1 lie in [0, N); for the
 * backward pass no two are the same: each row of dx then has one writer. Serves the rows that a masked-token
 * loss looks at (Devlin et al. 2019, section 3.1), and a first token's or a beam's rows in inference. */
#ifndef KERNELS_GATHER_H
#define KERNELS_GATHER_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor x;    // (N, C)
    Tensor rows; // (M) i32, device memory
    Tensor y;    // (M, C)
} GatherForward;

typedef struct {
    const GatherForward *forward;
    Tensor dy; // (M, C)
    Tensor dx; // (N, C); written
} GatherBackward;

CHECKED Status gather_forward(Ctx *ctx, const GatherForward *g);
CHECKED Status gather_backward(Ctx *ctx, const GatherBackward *g);

#ifdef __cplusplus
}
#endif
#endif
