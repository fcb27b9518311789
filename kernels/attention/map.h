/* map: what the first row of each sequence, such as a class token's, attends to. */
#pragma once

#include "kernels/attention/attention.h"

/* Of an attention that has run in inference, without a cache: map (B, heads, T) gets the probabilities, which
 * the naive form makes and keeps. */
CHECKED Status attention_map(Ctx *ctx, const AttentionForward *attention, Tensor map);
