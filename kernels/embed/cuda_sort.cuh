/* cuda_sort: the gradient of an embedding table, without atomics. Positions are sorted by token (stable
 * sort), so equal tokens are neighbours. Their rows of dy are summed in row order, in pieces of at most
 * PIECE positions, then piece after piece. */
#pragma once

#include "kernels/op.h"

typedef struct {
    Tensor order;     // (N) i32: 0 .. N-1
    Tensor tokens;    // (N) i32, ascending
    Tensor rows;      // (N) i32: original position of each sorted token
    Tensor temporary; // the sort's scratch
    Tensor partials;  // (pieces, C) fp32: sums of pieces that continue a run
} TokenSort;

/* Takes scratch for `count` tokens below `vocabulary` and rows of `width`. Computes nothing. */
CHECKED Status token_sort_take(Ctx *ctx, int64_t count, int64_t vocabulary, int64_t width, TokenSort *sort);

/* tokens (..) i32, `count` of them. */
CHECKED Status token_sort(Ctx *ctx, Tensor tokens, int64_t vocabulary, const TokenSort *sort);

/* dtoken[tokens[n],:] += scale * dy[n,:].   dy (.., C) fp32 or bf16, dtoken (V, C) fp32. After token_sort. */
CHECKED Status token_scatter_add(Ctx *ctx, const TokenSort *sort, Tensor dy, double scale, Tensor dtoken);

/* dsegment[k,:] += sum of dy[n,:] over the rows n of segment k. Empty segments: all 0. Takes scratch. */
CHECKED Status segment_sums(Ctx *ctx, Tensor dy, Tensor segments, Tensor dsegment);
