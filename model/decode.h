/* decode: one token of one sequence through the whole model as a single operation
 * (kernels/decode/decode.h). */
#pragma once

#include "kernels/decode/decode.h"
#include "model/transformer.h"

/* Computes logits, (1, padded vocab) fp32, of the token after `token`, (1) i32 in device memory. The cache
 * has one sequence and, with an encoder, its output; it grows by one token. The model must be a decoder. */
CHECKED Status transformer_decode(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits);
