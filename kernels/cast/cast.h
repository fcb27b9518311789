/* cast: a matrix rounded to 8 bits, as the products of --fused=fp8 read it, with one scale for all of it.
 *
 *     s           the largest power of two with s * max |x| <= 448       (base/float8.h)
 *     y[i][c]   = e4m3(s * x[i][c])             to nearest, ties to even
 *     t[c][i]   = y[i][c]
 *     scale     = 1 / s
 *     rounded   = scale * y                     exact in x's dtype, since s is a power of two
 *
 * The scale is of the tensor at hand, not of earlier steps: nothing overflows, there is no state to keep, and ranks
 * that share a step's micro-batches get the bits of one that does them all. Where x is not finite, scale is NaN, and so
 * is everything that is made of it. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x;       // (..., C)
    Tensor y;       // (..., C) e4m3; may be empty
    Tensor t;       // (C, rows) e4m3; may be empty
    Tensor scale;   // (1) fp32
    Tensor rounded; // (..., C) of x's dtype; may be empty
} Cast;

CHECKED Status cast_forward(Ctx *ctx, const Cast *c);

/* `rounded` of x, from scratch. */
CHECKED Status cast_values(Ctx *ctx, Tensor x, Tensor *rounded);
/* Takes t and scale from `saved`. */
CHECKED Status cast_take_transpose(Ctx *ctx, ArenaKind saved, Cast *c);
/* y from scratch, and t where it has been taken. */
CHECKED Status cast_bytes(Ctx *ctx, Cast *c);

__END_DECLS
