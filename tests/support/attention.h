/* attention: random attention problems, their runs in a rig, and bounds of rounding errors. */
#pragma once

#include "kernels/attention/attention.h"
#include "tests/support/compare.h"

typedef struct {
    int64_t batch, queries, keys, heads, kv_heads, size;
    bool causal;
    bool lengths; // a length per batch row: 0 for the first, random up to S for the others
    bool packed;  // q, k and v are columns of one buffer, and so are dq, dk and dv (T = S)
    int64_t gap;  // columns after them in the buffer: never read (they are NaN), never written
} AttentionCase;

typedef struct {
    AttentionCase size;
    const int32_t *key_lengths;
    const int32_t *starts; // (B, T): start of each token's document; NULL: 0
    double scale;
    bool inference;
    bool invariant;            // with FUSE_INVARIANT
    double dropout;            // rate
    const double *frequencies; // (D/2): rotary positions; NULL: none
} AttentionBatch;

/* Arrays are dense: q and y and their gradients (B, T, heads*D), k and v (B, S, kv_heads*D), lse (B, heads,
 * T). */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_DY, ATTENTION_INPUTS };
enum { ATTENTION_Y, ATTENTION_LSE, ATTENTION_DQ, ATTENTION_DK, ATTENTION_DV, ATTENTION_OUTPUTS };

int64_t attention_output_count(const AttentionCase *c, int output);
/* Scores have the standard deviation spread^2. */
void attention_inputs(const AttentionCase *c, Dtype dtype, double spread, AttentionBatch *batch, double **in);
/* Fills starts with documents of 1 to 2n - 1 tokens in each row; the first has 64, longer than any kernel's
 * block. */
void attention_documents(AttentionBatch *batch, int64_t n);
void attention_outputs(const AttentionCase *c, double **out);
/* A Body. With frequencies, rotated q and k go to out[ATTENTION_OUTPUTS] and the next one. */
void attention_run(Rig *rig, const void *batch, double *const *in, double *const *out);
/* Expected results and bounds, for q and k as used for scores: without frequencies, or already rotated. */
void attention_model(const AttentionBatch *batch, Units u, double *const *in, double **want, double **bound);
/* The specification's gradients must be the derivatives of its results. */
void attention_expect_gradients(const AttentionCase *c, const double *frequencies, const char *name);
