/* attention: multi-head scaled dot-product attention, from the packed projections to the merged heads.
 * Vaswani et al. 2017, eq. 1. Head h uses columns [h*D, (h+1)*D) of q and y, and those of key/value head h /
 * (heads / kv_heads) in k and v; then for each batch row and head
 *
 *     s[i,j] = scale * q[i] . k[j]
 *     p[i]   = softmax(s[i])                   over the keys that query i may see
 *     y[i]   = sum over j of m[i,j] * p[i,j] * v[j]
 *     lse[i] = log sum over j of exp(s[i,j])
 *
 * m is dropout's mask, keep / (1 - rate), or 1. Query i may see key j if j < the key length of its batch row,
 * and, when causal, j <= i + (keys - queries). A query that may see no key gives y = 0 and lse = -inf, and
 * passes no gradient.
 *
 * Backward, with delta[i] = dy[i] . y[i], and * elementwise:
 *
 *     dv = (m * p)^T dy
 *     ds = p * (m * (dy v^T) - delta)
 *     dq = scale * ds k                        dq, dk, dv are written
 *     dk = scale * ds^T q
 *
 * The fused forms recompute p from lse: Dao et al. 2022 (FlashAttention), algorithm 4.
 *
 * With rotary positions (Su et al. 2021, eq. 34; a pair is columns d and d + D/2 of a head, as in Hugging
 * Face's models) q and k are first rotated in place, and the cache and the backward pass use the rotated
 * values:
 *
 *     angle[t,d]   = (past + t) * frequencies[d]       for d < D/2
 *     q[t,d]       = q[t,d] * cos(angle[t,d]) - q[t,d+D/2] * sin(angle[t,d])
 *     q[t,d+D/2]   = q[t,d+D/2] * cos(angle[t,d]) + q[t,d] * sin(angle[t,d])
 *
 * and k likewise; dq and dk are rotated back, so they are the gradients of the unrotated q and k.
 *
 * A row may contain several documents that do not attend to each other: query i then sees no key before
 * starts[i], where its document begins, and rotary positions count from there.
 *
 * With a cache (inference only) k and v are first copied to rows [past, past + T) of cache_k and cache_v, and
 * the queries attend to the cache's first past + T rows. With pasts, batch row b has pasts[b] in place of
 * past. */
#pragma once

#include "kernels/dropout/dropout.h"

__BEGIN_DECLS

enum { ATTENTION_FEW = 4, ATTENTION_WIDTH = 256 };

/* q, k, v, y and the caches have the same dtype. Rows of a view are `stride` elements apart: q, k and v may
 * be columns of one packed projection. */
typedef struct {
    Tensor q;           // (B, T, heads*D) view; rotary: also written
    Tensor k, v;        // (B, S, kv_heads*D) views; rotary: T = S, and k is also written
    Tensor key_lengths; // (B) i32, device memory; empty: all keys count
    Tensor starts;      // (B, T) i32, device memory, nondecreasing along a row, each at most its own t;
                        // empty: 0. Only causal, with T = S, and without key lengths or a cache
    Tensor y;           // (B, T, heads*D)
    int64_t heads, kv_heads;
    bool causal;
    double scale;            // 1/sqrt(D)
    Tensor frequencies;      // (D/2) fp32: rotary positions; empty: none
    Dropout dropout;         // dropout of p, in training only; the mask's row is (b * heads + h) * T + i, its
                             // column is j
    Tensor cache_k, cache_v; // (B, capacity, kv_heads*D); empty: no cache
    int64_t past;            // rows already in the cache
    Tensor pasts;            // (B) i32, device memory, or empty: those of each batch row, of which past is
                             // the greatest. Only causal, with a cache
    Tensor past_on_device;   // (1) i32, or empty: with T <= ATTENTION_FEW and D <= ATTENTION_WIDTH the fused
                             // CUDA form reads past here, so that a captured graph stays valid; the caller
                             // has checked that it is at most capacity - T
    Tensor lse;              // (B, heads, T) fp32; empty when not training
    Tensor probabilities;    // (B, heads, T, S), saved by the naive form in training
} AttentionForward;

typedef struct {
    const AttentionForward *forward;
    Tensor dy;         // (B, T, heads*D)
    Tensor dq, dk, dv; // views shaped as q, k, v; written
} AttentionBackward;

/* On the CPU: the number of keys before batch row b's first query. */
static inline int64_t attention_past(const AttentionForward *a, int64_t b) {
    if (!tensor_empty(a->pasts)) return ((const int32_t *)a->pasts.data)[b];
    return a->past + a->k.shape.d[1] - a->q.shape.d[1];
}

/* Where they are empty, y, and in training lse and probabilities, are allocated from `saved`. */
CHECKED Status attention_forward(Ctx *ctx, AttentionForward *a, ArenaKind saved);
CHECKED Status attention_backward(Ctx *ctx, const AttentionBackward *a);

/* The probabilities of the first row of each sequence, such as a class token: map (B, heads, T). For an
 * attention that has run in inference, without a cache. The naive form computes them again. */
CHECKED Status attention_map(Ctx *ctx, const AttentionForward *attention, Tensor map);

__END_DECLS
