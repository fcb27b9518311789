#include "kernels/attention/cpu_blocks.h"

#include "base/checked.h"

/* ---- small products ---- */

/* Vectors in the last, narrower group of columns. */
enum { REST_VECTORS = TILE_WIDTH > TILE_UNIT ? TILE_UNIT / LANES : TILE_VECTORS };
_Static_assert(TILE_WIDTH == 2 * TILE_UNIT || TILE_UNIT % TILE_WIDTH == 0, "there is no other rest");

/* `rows` and `vectors` are constants after inlining, so the sums stay in registers. */
static inline __attribute__((always_inline)) void panel(const int rows, const int vectors, int64_t k,
                                                        TileView a, const float *b, int64_t ldb, float *c,
                                                        int64_t ldc, bool accumulate) {
    Lanes sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            if (accumulate)
                sum[i][v] = *(const LanesView *)(c + i * ldc + v * LANES);
            else
                sum[i][v] = (Lanes){0};
    for (int64_t p = 0; p < k; p++) {
        Lanes line[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) line[v] = *(const LanesView *)(b + p * ldb + v * LANES);
        for (int i = 0; i < rows; i++) {
            float factor = a.data[i * a.row + p * a.column];
            for (int v = 0; v < vectors; v++) sum[i][v] += factor * line[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) *(LanesView *)(c + i * ldc + v * LANES) = sum[i][v];
}

/* Computes a group of `vectors` vectors of columns. */
static inline __attribute__((always_inline)) void columns(const int vectors, int64_t m, int64_t k, TileView a,
                                                          const float *b, int64_t ldb, float *c, int64_t ldc,
                                                          bool accumulate) {
    for (int64_t i = 0; i < m; i += TILE_ROWS, a.data += TILE_ROWS * a.row, c += TILE_ROWS * ldc)
        switch (m - i) {
        case 1: panel(1, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        case 2: panel(2, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        case 3: panel(3, vectors, k, a, b, ldb, c, ldc, accumulate); break;
        default: panel(TILE_ROWS, vectors, k, a, b, ldb, c, ldc, accumulate);
        }
}

void tile_product(int64_t m, int64_t n, int64_t k, TileView a, const float *b, int64_t ldb, float *c,
                  int64_t ldc, bool accumulate) {
    for (int64_t j = 0; j < n; j += TILE_WIDTH)
        if (n - j < TILE_WIDTH)
            columns(REST_VECTORS, m, k, a, b + j, ldb, c + j, ldc, accumulate);
        else
            columns(TILE_VECTORS, m, k, a, b + j, ldb, c + j, ldc, accumulate);
}

/* ---- blocks ---- */

_Static_assert(QUERY_BLOCK % TILE_UNIT == 0, "a block of queries is made of whole tiles");

AttentionProblem attention_problem(const Ctx *ctx, const AttentionForward *a) {
    bool cached = !tensor_empty(a->cache_k);
    AttentionProblem p = {.a = a,
                          .k = cached ? a->cache_k : a->k,
                          .v = cached ? a->cache_v : a->v,
                          .batch = a->q.shape.d[0],
                          .queries = a->q.shape.d[1],
                          .heads = a->heads,
                          .group = a->heads / a->kv_heads,
                          .size = tensor_width(a->q) / a->heads};
    p.keys = cached ? a->past + p.queries : a->k.shape.d[1];
    p.key_rows = p.k.shape.d[1];
    p.drops = dropout_on(&a->dropout);
    if (p.drops && !ctx->measuring) p.dropout = dropout_mask(&a->dropout);
    p.padded = pieces(p.size, TILE_UNIT) * TILE_UNIT;
    return p;
}

int64_t attention_first_key(const AttentionForward *a, int64_t b, int64_t i) {
    const Tensor starts = a->starts;
    return tensor_empty(starts) ? 0 : ((const int32_t *)starts.data)[b * a->q.shape.d[1] + i];
}

int64_t attention_first_block(const AttentionProblem *p, int64_t b, int64_t i) {
    return attention_first_key(p->a, b, i) / KEY_BLOCK * KEY_BLOCK;
}

int64_t attention_visible(const AttentionProblem *p, int64_t b, int64_t i) {
    int64_t limit = p->keys;
    if (!tensor_empty(p->a->key_lengths)) {
        int64_t length = ((const int32_t *)p->a->key_lengths.data)[b];
        limit = length < limit ? length : limit;
    }
    int64_t last = attention_past(p->a, b) + i + 1;
    if (p->a->causal && last < limit) limit = last;
    return limit > 0 ? limit : 0;
}

void attention_mask(const AttentionProblem *p, int64_t b, int64_t i, int64_t j, int64_t keys, float *scores) {
    for (int64_t query = 0; query < QUERY_BLOCK && i + query < p->queries; query++)
        for (int64_t key = 0, end = attention_first_key(p->a, b, i + query) - j; key < keys && key < end;
             key++)
            scores[key * QUERY_BLOCK + query] = -INFINITY;
    if (!p->a->causal) return;
    for (int64_t key = 0; key < keys; key++) {
        int64_t blind = j + key - attention_past(p->a, b) - i; // queries before this one do not see the key
        for (int64_t query = 0; query < blind && query < QUERY_BLOCK; query++)
            scores[key * QUERY_BLOCK + query] = -INFINITY;
    }
}

void attention_drop(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, int64_t j, int64_t count,
                    int64_t keys, float *x) {
    float factor = (float)p->dropout.factor;
    for (int64_t query = 0; query < count && p->drops; query++)
        for (int64_t key = 0; key < keys; key += 4) {
            int64_t row = (b * p->heads + h) * p->queries + i + query;
            const RandomBlock words = dropout_words(&p->dropout, row, (j + key) / 4);
            for (int64_t e = 0; e < 4 && key + e < keys; e++)
                x[(key + e) * QUERY_BLOCK + query] *= words.word[e] >= p->dropout.least ? factor : 0;
        }
}

/* Vectors of columns in a block of scores, which keeps twice as many sums as a block of products. */
enum { SCORE_VECTORS = TILE_VECTORS / 2 };

/* Sums of every LANES-th product, added in order. */
static inline __attribute__((always_inline)) void score_panel(const int rows, int64_t size, TileView k,
                                                              const float *queries, float *scores) {
    Lanes sum[TILE_ROWS][SCORE_VECTORS] = {{{0}}};
    for (int lane = 0; lane < LANES; lane++) {
        Lanes part[TILE_ROWS][SCORE_VECTORS] = {{{0}}};
        for (int64_t d = lane; d < size; d += LANES) {
            const float *line = queries + d * QUERY_BLOCK;
            for (int i = 0; i < rows; i++)
                for (int v = 0; v < SCORE_VECTORS; v++)
                    part[i][v] += k.data[i * k.row + d] * *(const LanesView *)(line + v * LANES);
        }
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < SCORE_VECTORS; v++) sum[i][v] += part[i][v];
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < SCORE_VECTORS; v++)
            *(LanesView *)(scores + i * QUERY_BLOCK + v * LANES) = sum[i][v];
}

void score_product(int64_t keys, int64_t size, TileView k, const float *queries, float *scores) {
    for (int64_t j = 0; j < QUERY_BLOCK; j += SCORE_VECTORS * LANES)
        for (int64_t i = 0; i < keys; i += TILE_ROWS) {
            const TileView from = {k.data + i * k.row, k.row, 1};
            float *to = scores + i * QUERY_BLOCK + j;
            switch (keys - i) {
            case 1: score_panel(1, size, from, queries + j, to); break;
            case 2: score_panel(2, size, from, queries + j, to); break;
            case 3: score_panel(3, size, from, queries + j, to); break;
            default: score_panel(TILE_ROWS, size, from, queries + j, to);
            }
        }
}

void softmax_begin(RunningSoftmax *running) {
    for (int i = 0; i < QUERY_BLOCK; i++) {
        running->maximum[i] = -INFINITY;
        running->sum[i] = 0;
    }
}

void softmax_step(RunningSoftmax *running, int64_t keys, float *scores) {
    float maximum[QUERY_BLOCK], shift[QUERY_BLOCK], sum[QUERY_BLOCK] = {0};
    memcpy(maximum, running->maximum, sizeof maximum);
    for (int64_t j = 0; j < keys; j++) {
        const float *row = scores + j * QUERY_BLOCK;
#pragma omp simd
        for (int i = 0; i < QUERY_BLOCK; i++) maximum[i] = row[i] > maximum[i] ? row[i] : maximum[i];
    }
#pragma omp simd
    for (int i = 0; i < QUERY_BLOCK; i++) {
        shift[i] = maximum[i] == -INFINITY ? 0 : maximum[i];
        running->correction[i] = simd_exp(running->maximum[i] - shift[i]);
        running->maximum[i] = maximum[i];
    }
    for (int64_t j = 0; j < keys; j++) {
        float *row = scores + j * QUERY_BLOCK;
#pragma omp simd
        for (int i = 0; i < QUERY_BLOCK; i++) {
            row[i] = simd_exp(row[i] - shift[i]);
            sum[i] += row[i];
        }
    }
#pragma omp simd
    for (int i = 0; i < QUERY_BLOCK; i++)
        running->sum[i] = fmaf(running->sum[i], running->correction[i], sum[i]);
}

float softmax_query(int64_t keys, float *scores, float *maximum, float *sum) {
    const float before = *maximum;
    float part = 0;
    for (int64_t key = 0; key < keys; key++) *maximum = scores[key] > *maximum ? scores[key] : *maximum;
    const float shift = *maximum == -INFINITY ? 0 : *maximum, correction = simd_exp(before - shift);
#pragma omp simd
    for (int64_t key = 0; key < keys; key++) scores[key] = simd_exp(scores[key] - shift);
    for (int64_t key = 0; key < keys; key++) part += scores[key];
    *sum = fmaf(*sum, correction, part);
    return correction;
}

void softmax_gradient(int64_t keys, float scale, const float *lse, const float *delta, float *weights,
                      float *dscores) {
    for (int64_t j = 0; j < keys; j++, weights += QUERY_BLOCK, dscores += QUERY_BLOCK)
#pragma omp simd
        for (int i = 0; i < QUERY_BLOCK; i++) {
            weights[i] = simd_exp(weights[i] - lse[i]);
            dscores[i] = scale * weights[i] * (dscores[i] - delta[i]);
        }
}
