/* first_rows: what is done for the first row of each sequence alone, such as a class token's. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/pool/pool.h"

/* x (B, T, C) becomes (B, 1, C), taken from `saved`. `name` is the call's, in plans and profiles. */
CHECKED Status first_rows(Ctx *ctx, const char *name, ArenaKind saved, Tensor *x, PoolForward *pool);
/* dy (B, 1, C); dx (B, T, C) is written, with zeros in the other rows. */
CHECKED Status first_rows_back(Ctx *ctx, const char *name, const PoolForward *forward, Tensor dy, Tensor dx);

/* What the first rows attended to, of an attention that has run in inference, without a cache: map (B, heads, T)
 * gets the probabilities, which the naive form makes and keeps. */
CHECKED Status first_rows_map(Ctx *ctx, const AttentionForward *attention, Tensor map);
