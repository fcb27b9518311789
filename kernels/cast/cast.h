/* cast: a matrix rounded to 8 bits, as the products of --fused=fp8 read it, with one scale for all of it.
 *
 *     m           = max |x|
 *     s           = given                       or, if that is empty,
 *                   the largest power of two with s * m <= 448         (base/float8.h)
 *     y[i][c]     = e4m3(s * x[i][c])           to nearest, ties to even; beyond 448 it is 448
 *     t[c][i]     = y[i][c]
 *     scale       = 1 / s
 *     rounded     = scale * y                   exact in x's dtype, since s is a power of two
 *     sums[c]    += sum over i of x[i][c]
 *     seen[0]     = max(seen[0], m)
 *     seen[1]     = 1                           if s * m > 448; else unchanged
 *
 * A given scale comes from the previous step (model/scales.h): then a single pass over x suffices. Otherwise
 * m must be known before rounding, which takes a separate pass. An element of x that is not finite becomes
 * NaN; without a given scale, all of y does. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

enum { CAST_SEEN = 2 }; // elements of `seen`

typedef struct {
    Tensor x;       // (..., C)
    Tensor y;       // (..., C) e4m3; may be empty
    Tensor t;       // (C, rows) e4m3; may be empty
    Tensor scale;   // (1) fp32
    Tensor rounded; // (..., C) of x's dtype; may be empty
    Tensor given;   // (1) fp32, a power of two; may be empty
    Tensor seen;    // (CAST_SEEN) fp32 (fp64 of fp64); may be empty
    Tensor sums;    // (C) fp32 (fp64 of fp64); may be empty; not with `rounded`
} Cast;

CHECKED Status cast_forward(Ctx *ctx, const Cast *c);

/* Allocates `rounded` of c->x from scratch and computes it. */
CHECKED Status cast_values(Ctx *ctx, Cast *c);
/* Allocates t and scale from `saved`. */
CHECKED Status cast_take_transpose(Ctx *ctx, ArenaKind saved, Cast *c);
/* Allocates y, and scale unless it has been allocated, from scratch. */
CHECKED Status cast_take_bytes(Ctx *ctx, Cast *c);

__END_DECLS
