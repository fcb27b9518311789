/* cpu_blocks: code shared by the fused CPU forms, fp32 and AMX: blocks of 64 queries and 64 keys, with scores
 * stored transposed, (keys, queries). */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu_tile.h"
#include "kernels/dropout/mask.h"

enum {
    QUERY_BLOCK = 64,
    KEY_BLOCK = 64,
};

/* The contract, unpacked. Keys and values are those of the cache if there is one. */
typedef struct {
    const AttentionForward *a;
    Tensor k, v;
    int64_t batch, queries, keys; // B, T, S
    int64_t key_rows;             // distance of two batch rows of k and v, in rows
    int64_t heads, group;         // query heads; query heads that share a key/value head
    int64_t size, padded;         // D; D rounded up to whole tiles
    bool drops;
    DropoutMask dropout; // used if it drops anything
} AttentionProblem;

AttentionProblem attention_problem(const Ctx *ctx, const AttentionForward *a);

/* Query i of batch row b sees keys [first_key, visible). */
int64_t attention_first_key(const AttentionForward *a, int64_t b, int64_t i); // the first key of its document
int64_t attention_visible(const AttentionProblem *p, int64_t b, int64_t i);

/* The start of the first block of keys that query i sees. */
int64_t attention_first_block(const AttentionProblem *p, int64_t b, int64_t i);

/* Masks the scores (keys from j, queries from i) above the diagonal, and keys of other documents. */
void attention_mask(const AttentionProblem *p, int64_t b, int64_t i, int64_t j, int64_t keys, float *scores);

/* x (keys from j, queries from i of head h) *= the dropout mask. j is a multiple of 4. */
void attention_drop(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, int64_t j, int64_t count,
                    int64_t keys, float *x);

/* Online softmax of a block of queries, one vector element per query. */
typedef struct {
    float maximum[QUERY_BLOCK], sum[QUERY_BLOCK], correction[QUERY_BLOCK];
} RunningSoftmax;

/* Starts with no key seen. */
void softmax_begin(RunningSoftmax *running);

/* Replaces scores (keys, QUERY_BLOCK) by exponentials relative to the new maximum. Earlier sums must be
 * multiplied by `correction`. A query that has seen no key keeps the maximum -inf and sums of 0. */
void softmax_step(RunningSoftmax *running, int64_t keys, float *scores);

/* weights = exp(scores - lse); dscores, which holds dy v^T, becomes scale * weights * (dy v^T - delta). All
 * are (keys, QUERY_BLOCK), lse and delta (QUERY_BLOCK). */
void softmax_gradient(int64_t keys, float scale, const float *lse, const float *delta, float *weights,
                      float *dscores);

/* Takes the next `floats` of scratch. */
static inline float *carve(float **rest, int64_t floats) {
    float *piece = *rest;
    *rest += floats;
    return piece;
}
