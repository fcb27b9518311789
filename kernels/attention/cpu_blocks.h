/* cpu_blocks: what the fused CPU forms share, whatever their tiles are made of: a block of 64 queries
 * against a block of 64 keys, whose scores are held transposed, (keys, queries). */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu_tile.h"
#include "kernels/dropout/mask.h"

enum {
    QUERY_BLOCK = 64,
    KEY_BLOCK = 64,
};

/* The contract, unpacked. Keys and values are those attended to: the cache's where there is one. */
typedef struct {
    const AttentionForward *a;
    Tensor k, v;
    int64_t batch, queries, keys; // B, T, S
    int64_t key_rows;             // rows of k and v from one batch row to the next
    int64_t heads, group;         // query heads; those that share a key/value head
    int64_t size, padded;         // D; rounded up to whole tiles
    bool drops;
    DropoutMask dropout; // where it drops
} AttentionProblem;

AttentionProblem attention_problem(const Ctx *ctx, const AttentionForward *a);

/* Keys that query i of batch row b sees: they are [first_key, visible). */
int64_t attention_first_key(const AttentionForward *a, int64_t b, int64_t i); // its document's
int64_t attention_visible(const AttentionProblem *p, int64_t b, int64_t i);

/* Where a block of keys begins that query i sees. */
int64_t attention_first_block(const AttentionProblem *p, int64_t b, int64_t i);

/* Hides what lies above the diagonal of scores (keys from j, queries from i), and other documents' keys. */
void attention_mask(const AttentionProblem *p, int64_t b, int64_t i, int64_t j, int64_t keys, float *scores);

/* x (keys from j, queries from i of head h) *= what the mask keeps of each. j is a multiple of 4. */
void attention_drop(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, int64_t j, int64_t count,
                    int64_t keys, float *x);

/* Running softmax of a block of queries, one vector element for each. */
typedef struct {
    float maximum[QUERY_BLOCK], sum[QUERY_BLOCK], correction[QUERY_BLOCK];
} RunningSoftmax;

/* Nothing has been seen yet. */
void softmax_begin(RunningSoftmax *running);

/* Turns scores (keys, QUERY_BLOCK) into exponentials relative to the new maximum; `correction` is what
 * earlier sums are to be multiplied by. A query that has seen nothing yet keeps the maximum -inf and sums of
 * 0. */
void softmax_step(RunningSoftmax *running, int64_t keys, float *scores);

/* weights = exp(scores - lse); dscores, which holds dy v^T, becomes scale * weights * (dy v^T - delta). All
 * are (keys, QUERY_BLOCK), lse and delta (QUERY_BLOCK). */
void softmax_gradient(int64_t keys, float scale, const float *lse, const float *delta, float *weights,
                      float *dscores);

/* The next `floats` of scratch. */
static inline float *carve(float **rest, int64_t floats) {
    float *piece = *rest;
    *rest += floats;
    return piece;
}
