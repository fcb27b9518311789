/* cpu_blocks: code shared by the fused CPU forms, fp32 and AMX: blocks of 64 queries and 64 keys, with scores
 * stored transposed, (keys, queries). */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/dropout/mask.h"
#include "kernels/simd.h"

/* ---- small products, on operands that fit L1 and L2 ---- */

/* Rows, and columns in vectors, of the block of sums that one pass keeps in registers; the last block may
 * have fewer columns. The columns of a product are a multiple of TILE_UNIT, its rows any number. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE_ROWS = 4, TILE_VECTORS = 4 }; // 16 of 32 registers: enough to hide a multiply-add's latency
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 2 }; // 8 of 16 registers
#endif
enum { TILE_WIDTH = TILE_VECTORS * LANES, TILE_UNIT = 32 };

/* A strided matrix with element (i, p) = data[i * row + p * column]: rows of a tensor, or its transpose. */
typedef struct {
    const float *data;
    int64_t row, column;
} TileView;

/* C (m, n) = A (m, k) B (k, n), or += with `accumulate`. B and C are row-major with rows ldb and ldc apart; n
 * is a multiple of TILE_UNIT. Sums over k run in order. */
void tile_product(int64_t m, int64_t n, int64_t k, TileView a, const float *b, int64_t ldb, float *c,
                  int64_t ldc, bool accumulate);

/* ---- blocks ---- */

/* Scores are dot products of LANES interleaved sums, and softmax goes by blocks of keys that begin at
 * multiples of KEY_BLOCK: so a query's result has the same bits whether it is computed in a block of queries
 * or alone, and whatever the numbers of queries, of batch rows, and of keys that the query does not see. */
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
    int64_t heads, group;         // number of query heads; query heads per key/value head
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

/* scores (keys, QUERY_BLOCK) = k (keys, size) queries (size, QUERY_BLOCK), each sum in the order above. */
void score_product(int64_t keys, int64_t size, TileView k, const float *queries, float *scores);

/* Replaces scores (keys, QUERY_BLOCK) by exponentials relative to the new maximum. Earlier sums must be
 * multiplied by `correction`. A query that has seen no key keeps the maximum -inf and sums of 0. */
void softmax_step(RunningSoftmax *running, int64_t keys, float *scores);

/* The same for one query, scores (keys); returns the correction. */
float softmax_query(int64_t keys, float *scores, float *maximum, float *sum);

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
