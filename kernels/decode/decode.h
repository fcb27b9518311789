/* decode: one token through a whole decoder, from its id to the logits of the next token.
 *
 *     r = token_scale * token[id] + position[past]
 *
 * then in each layer the branches
 *
 *     self(u)  = projection(attention(qkv(u)))
 *     cross(u) = cross_projection(attention(query(u), memory))    if there is a memory
 *     feed(u)  = contract(activation(expand(u)))
 *
 * each with a norm before it (Radford et al. 2019, section 2.3; Touvron et al. 2023, section 2.2), and a
 * final norm before the head
 *
 *     r += branch(norm(r))
 *     logits = head final_norm(r)
 *
 * or each with a norm after it (Vaswani et al. 2017, section 3.1)
 *
 *     r = norm(r + branch(r))
 *     logits = head r
 *
 * where an optional final norm also precedes the head. Norms are those of norm.h, of either kind. Models with
 * RMS norms have neither a position table nor a norm after the branch; their feed-forward layers are gated
 * (SWIGLU), attention has rotary positions, and its heads may be normalized (attention.h, norm.h). Biases may
 * then be empty.
 *
 * Self attention appends the token's key and value to row `past` of the layer's cache and attends to rows [0,
 * past]. Cross attention attends to the memory: keys and values computed from the encoder's output.
 *
 * Inference only. The naive form runs the operations that decode fuses (naive.c), each dispatched in the form
 * selected for it, so it has no slot of its own. The fused form exists on CUDA only: a token is bound by
 * reading the weights once, and the kernels do little else (cuda_rows.cuh). It runs if these operations
 * would all be fused and kernels for the decoder exist; under --fused=fp8 it still multiplies in the weights'
 * own dtype. Matrices and the head may be quantized by groups (base/groups.h): the fused form then rounds the
 * inputs of products to 8 bits, too, and multiplies integers. The caller has checked that the id is in
 * [0, V). */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"

__BEGIN_DECLS

/* The parameters of a norm, (C) and (C) (RMS: no bias), or of a linear layer, (O, I) and (O). */
typedef struct {
    Tensor weight, bias;
} DecodeAffine;

typedef struct {
    DecodeAffine norm1;                // (C)
    DecodeAffine qkv;                  // ((heads + 2*kv_heads)*D, C)
    DecodeAffine projection;           // (C, heads*D)
    DecodeAffine norm2;                // (C)
    DecodeAffine expand;               // (hidden, C); gated: (2*hidden, C)
    DecodeAffine contract;             // (C, hidden)
    DecodeAffine query_norm, key_norm; // (D); empty: none
    Tensor cache_k, cache_v;           // (capacity, kv_heads*D); row `past` is written

    /* For cross attention; otherwise empty. */
    DecodeAffine cross_norm;       // (C)
    DecodeAffine query;            // (heads*D, C)
    DecodeAffine cross_projection; // (C, heads*D)
    Tensor memory;                 // (S, 2*kv_heads*D): each row is a key followed by a value

    const char *name; // "layer 0": the naive form's range in a profile
    int number;       // number of the layer in plans and profiles
} DecodeLayer;

typedef struct {
    Tensor token_id;           // (1) i32, device memory
    Tensor token;              // (V, C)
    Tensor position;           // (P, C); empty with RMS norms
    Tensor frequencies;        // (D/2) fp32: rotary positions; empty without RMS norms
    const DecodeLayer *layers; // (layer_count), all of the same sizes
    int64_t layer_count;
    DecodeAffine final_norm; // (C); with norm_after it may be empty
    Tensor head;             // (Vp, C)
    Tensor logits;           // (1, Vp) fp32, written
    int64_t asked;           // number of needed logits, from the first on (linear.h); 0: all
    int64_t heads, kv_heads;
    double token_scale; // factor of the token's embedding
    double scale;       // scale of attention's scores: 1/sqrt(D)
    double eps;         // epsilon of the norms
    NormKind norm_kind;
    bool norm_after;
    Activation activation;
    int qkv_parts;         // number of layers that the naive form runs for qkv: linear.h
    int64_t past;          // rows in the cache, fewer than its capacity and than P
    Tensor past_on_device; // (1) i32, or empty: replaces `past`, so that a captured graph stays valid
    Tensor memory_length;  // (1) i32, device memory: valid rows of each memory; empty: all
} Decode;

CHECKED Status decode_forward(Ctx *ctx, const Decode *decode);

/* Runs the naive form, even if the fused one is selected. */
CHECKED Status decode_naive(Ctx *ctx, const Decode *decode);

/* The self attention of a layer from its packed queries, keys and values; y is empty. */
AttentionForward decode_attention(const Decode *decode, const DecodeLayer *layer, Tensor qkv);

/* The work of a token. FLOPs are the sum over the naive form's operations. Bytes: every needed weight is read
 * once, and the valid rows of caches and memories. */
Work decode_work(const Decode *decode);

typedef struct {
    int64_t width, head_size, hidden;
    bool memory; // there is cross attention
} DecodeSizes;

/* Whether there are CUDA kernels for a decoder of these sizes, with FUSE_INVARIANT if it is set, on this
 * device; NULL in a build without CUDA. */
__attribute__((weak)) bool decode_cuda_serves(const Ctx *ctx, const DecodeSizes *sizes);

__END_DECLS
