/* decode: one token of one sequence through the whole model as a single operation
 * (kernels/decode/decode.h). */
#pragma once

#include "kernels/decode/decode.h"
#include "model/transformer.h"

/* logits, (1, padded vocab) fp32, of the token after `token`, (1) i32 in device memory. The cache is of one
 * sequence, holds the encoder's output where there is an encoder, and grows by one. The model is a decoder.
 * */
CHECKED Status transformer_decode(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits);
