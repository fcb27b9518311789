/* gather: rows of a matrix, by their numbers.
 *
 *     y[m] = x[rows[m]]         0 where rows[m] is -1
 *
 * Backward:
 *
 *     dx[rows[m]] = dy[m]       and 0 elsewhere: dx is written
 *
 * Rows other than -1 lie in [0, N). For the backward pass no two are the same, so that each row of dx has one
 * writer. Serves the rows that a masked-token loss looks at (Devlin et al. 2019, section 3.1), and a first
 * token's or a beam's rows in inference. */
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

/* y is taken from `saved` where it is empty. */
CHECKED Status gather_forward(Ctx *ctx, GatherForward *g, ArenaKind saved);
CHECKED Status gather_backward(Ctx *ctx, const GatherBackward *g);

__END_DECLS
