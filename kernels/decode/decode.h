/* decode: one token through a whole decoder, from its id to the logits of the next token.
 *
 *     r = token_scale * token[id] + position[past]
 *
 * then in each layer the branches
 *
 *     self(u)  = projection(attention(qkv(u)))
 *     cross(u) = cross_projection(attention(query(u), memory))    where there is a memory
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
 * where a final norm, if there is one, goes before the head, too. Norms are norm.h's, of either kind. With
 * RMS norms there is neither a position table nor a norm after, the feed-forward layers are gated (SWIGLU),
 * attention has rotary positions, and its heads may be normed (attention.h, norm.h); biases may then be
 * empty.
 *
 * Self-attention appends the token's key and value to row `past` of the layer's cache and attends to rows
 * [0, past]. Cross attention attends to the memory, keys and values made from the encoder's output.
 *
 * Inference only. The naive form is the operations that this one stands for (naive.c), each in the form that
 * is asked for it. It has no slot, since each comes through the door for itself. The fused form is CUDA's: a
 * token is bound by reading the weights once, and its kernels do little else (cuda_token.cuh). It runs where
 * the operations would be fused, too, and there are kernels for the decoder; under --fused=fp8 it still
 * multiplies in the weights' own dtype. Matrices and the head may be integers by groups (base/groups.h): then the
 * naive form runs. The caller has checked that the id lies in [0, V). */
#pragma once

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

    /* Of cross attention; empty without. */
    DecodeAffine cross_norm;       // (C)
    DecodeAffine query;            // (heads*D, C)
    DecodeAffine cross_projection; // (C, heads*D)
    Tensor memory;                 // (S, 2*kv_heads*D): in each row a key, then a value

    const char *name; // "layer 0": of the naive form's range in a profile
    int number;       // in plans and profiles
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
    int64_t heads, kv_heads;
    double token_scale; // of the token's row
    double scale;       // of attention's scores: 1/sqrt(D)
    double eps;         // of the norms
    NormKind norm_kind;
    bool norm_after;
    Activation activation;
    int qkv_parts;         // qkv as so many layers in the naive form: linear.h
    int64_t past;          // rows in the cache, less than its capacity and than P
    Tensor past_on_device; // (1) i32, or empty: the number that counts instead of `past`, so that captured
                           // work can go on
    Tensor memory_length;  // (1) i32, device memory: rows of each memory that count; empty: all
} Decode;

CHECKED Status decode_forward(Ctx *ctx, const Decode *decode);

/* The naive form, where the fused one is asked for, too. */
CHECKED Status decode_naive(Ctx *ctx, const Decode *decode);

typedef struct {
    NormKind norm_kind;
    int64_t width, head_size, hidden;
} DecodeSizes;

/* Whether there are CUDA kernels for a decoder of these sizes on this device; NULL in a build without CUDA.
 * */
__attribute__((weak)) bool decode_cuda_serves(const Ctx *ctx, const DecodeSizes *sizes);

__END_DECLS
