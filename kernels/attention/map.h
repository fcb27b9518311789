/* map: attention probabilities of the first row of each sequence, such as a class token. */
#pragma once

#include "kernels/attention/attention.h"

/* For an attention that has run in inference, without a cache: writes the probabilities to map (B, heads, T).
 * The naive form computes them again. */
CHECKED Status attention_map(Ctx *ctx, const AttentionForward *attention, Tensor map);
