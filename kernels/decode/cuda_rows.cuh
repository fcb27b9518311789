/* cuda_rows: the kernels that take one token through a decoder: Embed, five launches a layer (eight with
 * cross attention), and the head.
 *
 *     qkv    = Wqkv norm(r)                  Product, with a norm
 *     y      = attention(qkv)                Heads: head norms, rotary positions, cache
 *     r      = r + Wo y                      Product, with a skip
 *     q      = Wq norm(r)                    Product, with a norm
 *     y      = attention(q, memory)          Heads
 *     r      = r + Wo y                      Product, with a skip
 *     hidden = activation(W norm(r))         Product, with a norm; gated: silu(Wgate u) * (Wup u)
 *     r      = r + Wdown hidden              Product, with a skip
 *     logits = Whead norm(r)                 Product, with a norm
 *
 * A kernel prefetches weights before the previous kernel has finished. A norm needs no launch of its own,
 * because every block reads all of r. In fp32 (cuda_rows.cu) a warp computes an output, and of
 *
 *     W norm(r) = rstd W (g (r - mean)) + W b
 *
 * rstd is a factor of the whole sum, and W b needs no r.
 *
 * With the norm after a branch, the next product applies it, and its first block keeps the normalized row, to
 * which the branch after it is added.
 *
 * In bf16 products (cuda_ordered.cu) and attention (kernels/attention) have the order of many rows, as
 * FUSE_INVARIANT requires.
 *
 * Each kernel but the first product and the head lets the next start before its own wait, so that several
 * kernels are on the GPU with their weights. This is safe: before its wait a kernel reads only weights, the
 * position and the caches' earlier rows. Kernels of earlier tokens wrote those; the first product has waited
 * for them before it lets others start. The head waits too, because the kernel after it may be any. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/linear/linear.h"

namespace decode {

enum Norming { PLAIN, RMS, LAYER }; // of a product's x: none, an RMS norm, a layer norm

/* r = token_scale * token[id] + position[past]. */
template <class T>
struct Embed {
    const T *token, *position; // (V, width), (P, width); position NULL: none
    const int *id, *past;      // (1), (1); past NULL: `rows`
    int rows, width;
    float token_scale;
    T *r; // (width)
};

/* y = activation(W norm(x) + bias) + skip. */
template <class T>
struct Product {
    const T *x;                // (in)
    const T *norm, *norm_bias; // (in): x's norm, or NULL: none; without norm_bias an RMS norm
    const T *weight, *bias;    // (out, in); (out) or NULL. Gated: 2*out rows, and y = silu(first) * second
    const int8_t *codes;       // weight as I8 by groups (base/groups.h), or NULL
    const bf16 *scales;        // its scales
    const T *skip;             // (out) or NULL
    T *y;                      // (out), or NULL:
    float *logits;             // (out)
    T *kept;                   // (in): norm(x), written; or NULL
    int in, out;
    int64_t layer_bytes;   // of all weights of a layer
    float inverse, eps;    // 1 / in
    Activation activation; // of a layer that is not gated
    bool first;            // of the token

    /* Whether the kernel lets the next one start only after its own wait. */
    __device__ bool last_to_start() const { return first || logits; }
};

/* Attention of a token's heads to the cache and to the token itself, which is appended to the cache; or to a
 * memory, without the token's key and value. */
template <class T>
struct Heads {
    const T *qkv;                   // ((heads + 2 kv_heads) D), with a memory (heads*D)
    const T *query_norm, *key_norm; // (D) or NULL
    const float *frequencies;       // (D/2): rotary positions; or NULL
    T *cache_k, *cache_v;           // (capacity, kv_heads*D), rows row_stride elements apart
    const int *past;                // (1), replaces `rows`; or NULL
    int rows, capacity;             // rows in use, of all
    int row_stride, heads, kv_heads;
    float eps, scale; // scale of the scores, in base 2
    T *y;             // (heads*D), written
};

CHECKED Status embed(Ctx *ctx, const Embed<float> &e);
CHECKED Status embed(Ctx *ctx, const Embed<bf16> &e);
/* in is a multiple of 16 bytes; a gated product has an RMS norm. */
CHECKED Status product(Ctx *ctx, const Product<float> &p, bool gated);
CHECKED Status product(Ctx *ctx, const Product<bf16> &p, bool gated);
/* The same by codes, with an RMS norm or none; out is a multiple of GROUP_ROWS, in of GROUP. */
CHECKED Status product_by_groups(Ctx *ctx, const Product<float> &p, bool gated);
CHECKED Status product_by_groups(Ctx *ctx, const Product<bf16> &p, bool gated);
/* In bf16, by tensor cores, with the bits that the row has among others (FUSE_INVARIANT), for rows that have
 * this order. A skip is added to the rounded output. */
bool product_has_order(int64_t in);
CHECKED Status product_in_order(Ctx *ctx, const Product<bf16> &p, bool gated);
bool heads_suit(int64_t D); // whether D is 32, 64 or 128
CHECKED Status heads(Ctx *ctx, const Heads<float> &h, int D, bool across);
CHECKED Status heads(Ctx *ctx, const Heads<bf16> &h, int D, bool across);

} // namespace decode
