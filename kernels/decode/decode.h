/* decode: one token through a whole pre-norm decoder (Radford et al. 2019, section 2.3), from its id to the
 * logits of the token behind it, as generation with a cache needs it:
 *     r = token[id] + position[past]
 *     in each layer:  r += projection(attention(qkv(norm1(r))));  r += contract(activation(expand(norm2(r))))
 *     logits = head norm(r)
 * where attention (attention.h) appends the new row to row `past` of the layer's cache and looks at rows
 * [0, past]. Naive is the composition of embed, norm, linear and attention. The fused CUDA form is bound by
 * reading the weights once, so it is two kernels a layer and one for the head: see cuda_token.cuh. The caller
 * has checked that the id lies in [0, V) and that past is less than the capacity. Inference only. */
#ifndef KERNELS_DECODE_H
#define KERNELS_DECODE_H

#include "kernels/linear/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a norm: (C), (C); of a linear layer: (O, I), (O). */
typedef struct {
    Tensor weight, bias;
} DecodeAffine;

typedef struct {
    DecodeAffine norm1, qkv, projection, norm2, expand, contract;
    Tensor cache_k, cache_v; // (capacity, kv_heads*D)
} DecodeLayer;

typedef struct {
    Tensor token_id;           // (1) i32, device memory
    Tensor token, position;    // (V, C), (P, C)
    const DecodeLayer *layers; // (layer_count), all of the same sizes
    int64_t layer_count;
    DecodeAffine final_norm;
    Tensor head;   // (Vp, C)
    Tensor logits; // (1, Vp) fp32
    int64_t heads, kv_heads;
    double scale; // of attention's scores
    double eps;   // of the norms
    Activation activation;
    int64_t past;          // rows in the cache
    Tensor past_on_device; // (1) i32, or empty: the fused CUDA form reads past here instead
} Decode;

CHECKED Status decode_forward(Ctx *ctx, const Decode *decode);

/* The composition, of the naive or of the fused forms of its parts. */
CHECKED Status decode_compose(Ctx *ctx, const Decode *decode, Form form);

#ifdef __cplusplus
}
#endif
#endif
