/* cuda_rows: the kernels that take one token through a stack with RMS norms: three kinds of launches, five a
 * layer.
 *
 *     qkv    = Wqkv norm(r)                         Product, with a norm
 *     y      = attention(qkv)                       Heads: head norms, rotary positions, cache
 *     r      = r + Wo y                             Product, with a skip
 *     hidden = silu(Wgate norm(r)) * (Wup norm(r))  Product, gated, with a norm
 *     r      = r + Wdown hidden                     Product, with a skip
 *
 * A warp computes an output from its row of weights, which it prefetches before the previous kernel has
 * finished. RMS norm needs no pass of its own: rstd is a factor of the whole sum, and every warp reads all of
 * r.
 *
 * Each kernel but the token's first and last lets the next start before its own wait, so that several kernels
 * are on the GPU with their weights. This is safe: before its wait a kernel reads only weights, the position
 * and the caches' earlier rows. Kernels of earlier tokens wrote those; the first kernel has waited for them
 * before it lets others start. The last one waits too, because the kernel after it may be any. */
#pragma once

#include "kernels/cuda/packs.cuh"

namespace decode {

/* y = W norm(x) + bias + skip. */
template <class T>
struct Product {
    const T *x;             // (in); with id, row `id` of (V, in)
    const int *id;          // (1) or NULL
    const T *norm;          // (in): the weight of x's norm, or NULL: none
    const T *weight, *bias; // (out, in); (out) or NULL. Gated: 2*out rows, and y = silu(first) * second
    const int8_t *codes;    // weight as I8 by groups (base/groups.h), or NULL
    const bf16 *scales;     // its scales
    const T *skip;          // (out) or NULL; with skip_id, a row of (V, out)
    const int *skip_id;     // (1) or NULL
    T *y;                   // (out), or NULL:
    float *logits;          // (out)
    int in, out;
    float eps;
};

/* Attention of a token's heads to the cache and to the token itself, which is appended to the cache. */
template <class T>
struct Heads {
    const T *qkv;                   // ((heads + 2 kv_heads) D)
    const T *query_norm, *key_norm; // (D) or NULL
    const float *frequencies;       // (D/2): rotary positions
    T *cache_k, *cache_v;           // (capacity, kv_heads*D)
    const int *past;                // (1), replaces `rows`; or NULL
    int rows;                       // rows in the cache
    int heads, kv_heads;
    float eps, scale; // scale of the scores, in base 2
    T *y;             // (heads*D), written
};

/* in is a multiple of 16 bytes; D is 32, 64 or 128. */
CHECKED Status product(Ctx *ctx, const Product<float> &p, bool gated);
CHECKED Status product(Ctx *ctx, const Product<bf16> &p, bool gated);
/* The same by codes; out is a multiple of GROUP_ROWS, in of GROUP. */
CHECKED Status product_by_groups(Ctx *ctx, const Product<float> &p, bool gated);
CHECKED Status product_by_groups(Ctx *ctx, const Product<bf16> &p, bool gated);
CHECKED Status heads(Ctx *ctx, const Heads<float> &h, int D);
CHECKED Status heads(Ctx *ctx, const Heads<bf16> &h, int D);

} // namespace decode
