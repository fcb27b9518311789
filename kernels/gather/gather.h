/* gather: selects rows of a matrix by index.
 *
 *     y[m] = x[rows[m]]         0 where rows[m] is -1
 *
 * Backward:
 *
 *     dx[rows[m]] = dy[m]       and 0 elsewhere: dx is written
 *
 * Rows other than -1 lie in [0, N). In the backward pass they must be distinct, so that each row of dx has
 * one writer. Used for the masked rows of a masked-token loss (Devlin et al. 2019, section 3.1), and in
 * inference for first tokens and beams. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

/* x and y have one dtype. */
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

/* Takes an empty y from `saved`. */
CHECKED Status gather_forward(Ctx *ctx, GatherForward *g, ArenaKind saved);
CHECKED Status gather_backward(Ctx *ctx, const GatherBackward *g);

__END_DECLS
