/* decode: the stack for one token of one sequence, as the one operation that decoding is bound by
 * (kernels/decode/decode.h). */
#ifndef MODEL_DECODE_H
#define MODEL_DECODE_H

#include "kernels/decode/decode.h"
#include "model/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is transformer_decode for a model's architecture, and it is worth it: everything that it is
 * made of runs fused. Otherwise transformer_forward lets every operation have the form that was asked for. */
bool transformer_decodes(const Ctx *ctx, const Transformer *model);

/* Logits, (1, padded vocab) fp32, of the token behind `token`, (1) i32 in device memory; the cache, of one
 * sequence and with the encoder's output read where there is an encoder, grows by one. */
CHECKED Status transformer_decode(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits);

#ifdef __cplusplus
}
#endif
#endif
