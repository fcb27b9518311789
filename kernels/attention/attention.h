/* attention: multi-head scaled dot-product attention, from packed projections to merged heads. Vaswani et al.
 * 2017, eq. 1. Head h uses columns [h*D, (h+1)*D) of q and y, and key/value head h / (heads / kv_heads) of k
 * and v: s[i,j] = scale * q[i].k[j];   p[i,:] = softmax(s[i,:]) over the keys that i may see;   y[i] = sum_j
 * p[i,j] v[j] Query i may see key j if j < the key length of its batch row, and, when causal, j <= i + (keys
 * - queries). A query that may see no key at all gives y = 0 and passes no gradient. q, k, v are views (rows
 * `stride` apart), so that they can be columns of one packed projection (B, T, 3C). lse[b,h,i] = log sum_j
 * exp(s[i,j]) (-inf where nothing is seen). Backward, with P = p and delta[i] = dy[i].y[i]:   dv = P^T dy; ds
 * = P * (dy v^T - delta);   dq = scale * ds k; dk = scale * ds^T q.  dq, dk, dv are written. Dao et al. 2022
 * (FlashAttention), algorithm 4, for the fused form. With a cache (inference only) k and v are first copied
 * to rows [past, past + T) of cache_k and cache_v, and the queries attend to the cache's first past + T rows.
 */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/dropout/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_FEW = 4, ATTENTION_WIDTH = 256 };

typedef struct {
    Tensor q;           // (B, T, heads*D) view
    Tensor k, v;        // (B, S, kv_heads*D) views
    Tensor key_lengths; // (B) i32, device memory; empty: all keys count
    Tensor y;           // (B, T, heads*D) dense
    int64_t heads, kv_heads;
    bool causal;
    double scale;    // 1/sqrt(D)
    Dropout dropout; // of p once it is normalized, in training only: y[i] = sum_j dropout(p)[i,j] v[j];
                     // the mask's row is (b * heads + h) * T + i, its column j
    Tensor cache_k, cache_v; // (B, capacity, kv_heads*D) dense; empty: no cache
    int64_t past;            // rows already in the cache
    Tensor
        past_on_device; // (1) i32, or empty: of up to ATTENTION_FEW queries with D up to ATTENTION_WIDTH the
                        // fused CUDA form reads past here instead, so that captured work can go on; the
                        // caller has checked that it is at most capacity - T
    Tensor lse;         // (B, heads, T) fp32; taken by attention_forward when training
    Tensor probabilities; // (B, heads, T, S): taken when training and the form is naive
} AttentionForward;

typedef struct {
    const AttentionForward *forward;
    Tensor dy;         // (B, T, heads*D) dense
    Tensor dq, dk, dv; // views shaped as q, k, v; written
} AttentionBackward;

/* `saved` is the arena that lse and probabilities are taken from when training. */
CHECKED Status attention_forward(Ctx *ctx, AttentionForward *a, ArenaKind saved);
CHECKED Status attention_backward(Ctx *ctx, const AttentionBackward *a);

#ifdef __cplusplus
}
#endif
#endif
