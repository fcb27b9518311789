/* cuda_heads: conversions between (B, rows, heads*D), the model's layout, and one matrix per head, which
 * textbook attention multiplies. */
#pragma once

#include "kernels/ctx.h"

/* Copies the first `rows` of x (B, .., heads*D) to split (B, heads, room, D), followed by zeros; with pasts,
 * (B) i32, the first pasts[b] + rows. x may be a view or a cache. */
CHECKED Status split_heads(Ctx *ctx, Tensor x, int64_t rows, Tensor split, Tensor pasts = {});
/* split (B, heads, room, D) -> y (B, rows, heads*D), which may be a view. */
CHECKED Status merge_heads(Ctx *ctx, Tensor split, Tensor y);
/* Copies the rows of x (B, rows, width) to rows past .. past + rows of the cache (B, capacity, width); pasts,
 * (B) i32 or empty, replace past. */
CHECKED Status append_rows(Ctx *ctx, Tensor x, int64_t past, Tensor pasts, Tensor cache);
