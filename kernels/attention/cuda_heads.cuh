/* cuda_heads: between (B, rows, heads*D), as the model has queries, keys and values, and one matrix for each
 * head, as textbook attention multiplies them. */
#pragma once

#include "kernels/ctx.h"

/* The first `rows` of x (B, .., heads*D) -> split (B, heads, room, D), with 0 behind them; x may be a view
 * with a longer stride, or a cache. */
CHECKED Status split_heads(Ctx *ctx, Tensor x, int64_t rows, Tensor split);
/* split (B, heads, room, D) -> y (B, rows, heads*D), which may be a view. */
CHECKED Status merge_heads(Ctx *ctx, Tensor split, Tensor y);
/* The rows of x (B, rows, width) become rows past .. past + rows of the cache (B, capacity, width). */
CHECKED Status append_rows(Ctx *ctx, Tensor x, int64_t past, Tensor cache);
