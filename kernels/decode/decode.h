/* decode: one token through a whole decoder, from its id to the logits of the token behind it, as generation
 * with a cache needs it: r = token_scale * token[id] + position[past]; then in each layer the branches
 *     attention(u) = projection(attention(qkv(u)))
 *     cross(u)     = cross_projection(attention(query(u), memory))         where there is a memory
 *     feed(u)      = contract(activation(expand(u)))
 * with the norm before each (Radford et al. 2019, section 2.3), and a last one before the head,
 *     r += branch(norm(r));   logits = head norm(r)
 * or after it (Vaswani et al. 2017, section 3.1):
 *     r = norm(r + branch(r));   logits = head r
 * The first attention (attention.h) appends the new row to row `past` of the layer's cache and looks at rows
 * [0, past]; the second looks at the encoder's keys and values, which are there. Naive is the composition of
 * embed, norm, linear and attention. The fused CUDA form is bound by reading the weights once, so it is a
 * kernel for each branch and one for the head: see cuda_token.cuh. The caller has checked that the id lies in
 * [0, V) and that past is less than the capacity. Inference only. */
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

    /* Of cross attention; empty without. */
    DecodeAffine cross_norm, query, cross_projection;
    Tensor memory; // (S, 2*kv_heads*D): in each row a key, then a value
} DecodeLayer;

typedef struct {
    Tensor token_id;           // (1) i32, device memory
    Tensor token, position;    // (V, C), (P, C)
    const DecodeLayer *layers; // (layer_count), all of the same sizes
    int64_t layer_count;
    DecodeAffine final_norm; // empty with norm_after
    Tensor head;             // (Vp, C)
    Tensor logits;           // (1, Vp) fp32
    int64_t heads, kv_heads;
    double token_scale; // of the token's row
    double scale;       // of attention's scores
    double eps;         // of the norms
    bool norm_after;
    Activation activation;
    int64_t past;          // rows in the cache
    Tensor past_on_device; // (1) i32, or empty: the fused CUDA form reads past here instead
    Tensor memory_length;  // (1) i32, device memory: rows of each memory that count; empty: all
} Decode;

CHECKED Status decode_forward(Ctx *ctx, const Decode *decode);

/* The composition, of the naive or of the fused forms of its parts. */
CHECKED Status decode_compose(Ctx *ctx, const Decode *decode, Form form);

#ifdef __cplusplus
}
#endif
#endif
