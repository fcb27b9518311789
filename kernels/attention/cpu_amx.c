#include "kernels/attention/cpu_amx.h"

#ifdef __AMX_BF16__

#include "base/bfloat16.h"
#include "kernels/device/amx.h"
#include "kernels/device/amx_turn.h"

enum { SIDE = AMX_SIDE, DEPTH = AMX_DEPTH, BLOCK = QUERY_BLOCK, SQUARE = BLOCK * BLOCK };
_Static_assert(QUERY_BLOCK == KEY_BLOCK && TILE_UNIT % DEPTH == 0, "operands are made of whole tiles");

/* ---- operands ---- */

/* to (columns, rows) = from (rows, columns)^T, in 4-byte words; both sizes are multiples of 16. */
static void transpose_words(const void *from, int64_t rows, int64_t columns, void *to) {
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t c = 0; c < columns; c += SIDE)
            amx_transpose((const uint32_t *)from + i * columns + c, columns, (uint32_t *)to + c * rows + i,
                          rows);
}

/* to (BLOCK, padded) = from (rows, width), padded with zeros. */
static void copy_rows(const bf16 *from, int64_t stride, int64_t rows, int64_t width, int64_t padded,
                      bf16 *to) {
    if (rows < BLOCK || width < padded) memset(to, 0, (size_t)(BLOCK * padded) * sizeof *to);
    for (int64_t i = 0; i < rows; i++) memcpy(to + i * padded, from + i * stride, (size_t)width * sizeof *to);
}

static __m512i zip(__m256i low, __m256i high) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* Packs rows (BLOCK, padded) into pairs (BLOCK / 2, padded). */
static void pairs_of_rows(const bf16 *rows, int64_t padded, AmxPair *to) {
    for (int64_t i = 0; i < BLOCK; i += 2, to += padded)
        for (int64_t d = 0; d < padded; d += SIDE) {
            const bf16 *low = rows + i * padded + d, *high = low + padded;
            _mm512_storeu_si512(to + d, zip(_mm256_loadu_si256((const __m256i *)low),
                                            _mm256_loadu_si256((const __m256i *)high)));
        }
}

static __m256i narrow(const float *x) {
    return (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x));
}

/* Rounds x (BLOCK, BLOCK) to bf16. */
static void rows_of_floats(const float *x, bf16 *to) {
    for (int64_t i = 0; i < SQUARE; i += SIDE) _mm256_storeu_si256((__m256i *)(to + i), narrow(x + i));
}

static void pairs_of_floats(const float *x, AmxPair *to) {
    for (int64_t i = 0; i < BLOCK; i += 2, to += BLOCK)
        for (int64_t c = 0; c < BLOCK; c += SIDE)
            _mm512_storeu_si512(to + c, zip(narrow(x + i * BLOCK + c), narrow(x + (i + 1) * BLOCK + c)));
}

static void write_row(const float *from, int64_t width, bf16 *to) {
#pragma omp simd
    for (int64_t d = 0; d < width; d++) to[d].bits = bfloat16_from_float(from[d]);
}

/* scores (keys, queries) *= scale; keys beyond the last become 0. */
static void scale_scores(int64_t keys, float scale, float *scores) {
#pragma omp simd
    for (int64_t i = 0; i < keys * BLOCK; i++) scores[i] *= scale;
    memset(scores + keys * BLOCK, 0, (size_t)((BLOCK - keys) * BLOCK) * sizeof *scores);
}

/* ---- the forward pass ---- */

static bf16 *row_of(Tensor t, int64_t row, int64_t head, int64_t size) {
    return (bf16 *)t.data + row * t.stride + head * size;
}

static bf16 *carve_rows(float **scratch, int64_t elements) {
    return (bf16 *)carve(scratch, elements / 2);
}

static AmxPair *carve_pairs(float **scratch, int64_t pairs) {
    return (AmxPair *)carve(scratch, pairs);
}

/* Writes query i of head h in batch row b, from its weighted values, which it changes, and the sum of its
 * weights. */
static void write_output(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, float *values,
                         float maximum, float sum) {
    const AttentionForward *a = p->a;
    const float inverse = sum == 0 ? 0 : 1 / sum;
#pragma omp simd
    for (int64_t d = 0; d < p->size; d++) values[d] *= inverse;
    write_row(values, p->size, row_of(a->y, b * p->queries + i, h, p->size));
    if (!tensor_empty(a->lse)) float_row(a->lse, b * p->heads + h)[i] = maximum + logf(sum);
}

int64_t amx_forward_floats(const AttentionProblem *p) {
    return BLOCK * p->padded * 4 + SQUARE * 3 / 2;
}

void amx_forward_block(const AttentionProblem *p, int64_t b, int64_t h, int64_t first, float *scratch) {
    const AttentionForward *a = p->a;
    const int64_t padded = p->padded, size = p->size, kv = h / p->group;
    const int64_t count = least(p->queries - first, BLOCK);
    float *sums = carve(&scratch, padded * BLOCK);                // (D, queries)
    float *turned = carve(&scratch, BLOCK * padded);              // (queries, D)
    bf16 *rows = carve_rows(&scratch, BLOCK * padded);            // (64, D): queries, keys, values
    AmxPair *pairs = carve_pairs(&scratch, BLOCK / 2 * padded);   // (keys / 2, D): values
    AmxPair *queries = carve_pairs(&scratch, padded / 2 * BLOCK); // (D / 2, queries)
    bf16 *values = carve_rows(&scratch, padded * BLOCK);          // (D, keys)
    float *scores = carve(&scratch, SQUARE);                      // (keys, queries)
    AmxPair *weights = carve_pairs(&scratch, SQUARE / 2);         // (keys / 2, queries)
    RunningSoftmax running;
    softmax_begin(&running);
    amx_begin();
    memset(sums, 0, (size_t)(padded * BLOCK) * sizeof *sums);
    copy_rows(row_of(a->q, b * p->queries + first, h, size), a->q.stride, count, size, padded, rows);
    transpose_words(rows, BLOCK, padded / 2, queries);
    for (int64_t j = attention_first_block(p, b, first), end = attention_visible(p, b, first + count - 1);
         j < end; j += BLOCK) {
        int64_t keys = least(end - j, BLOCK);
        copy_rows(row_of(p->k, b * p->key_rows + j, kv, size), p->k.stride, keys, size, padded, rows);
        amx_product(BLOCK, BLOCK, padded, rows, padded, queries, BLOCK, scores, BLOCK, false);
        scale_scores(keys, (float)a->scale, scores);
        attention_mask(p, b, first, j, keys, scores);
        softmax_step(&running, keys, scores);
        attention_drop(p, b, h, first, j, count, keys, scores);
        pairs_of_floats(scores, weights);
        for (int64_t d = 0; d < padded; d++)
#pragma omp simd
            for (int64_t i = 0; i < BLOCK; i++) sums[d * BLOCK + i] *= running.correction[i];
        copy_rows(row_of(p->v, b * p->key_rows + j, kv, size), p->v.stride, keys, size, padded, rows);
        pairs_of_rows(rows, padded, pairs);
        transpose_words(pairs, BLOCK / 2, padded, values);
        amx_product(padded, BLOCK, BLOCK, values, BLOCK, weights, BLOCK, sums, BLOCK, true);
    }
    _tile_release();
    transpose_words(sums, padded, BLOCK, turned);
    for (int64_t i = 0; i < count; i++)
        write_output(p, b, h, first + i, turned + i * padded, running.maximum[i], running.sum[i]);
}

/* ---- one query ---- */

/* With the bits of amx_forward_block. Products have the arithmetic of a tile's
 * (kernels/linear/cpu_amx_few.c): even and odd terms of 32 are summed apart, and denormals are zero. They are
 * not inlined, because the compiler may move arithmetic across the change of its mode. */

/* A view of a head's rows of one block of keys, in whole pieces: in place, or else copied. */
typedef struct {
    const bf16 *data;
    int64_t stride;
} HeadRows;

static HeadRows head_rows(const AttentionProblem *p, Tensor t, int64_t row, int64_t kv, int64_t keys,
                          bf16 *packed) {
    const bf16 *from = row_of(t, row, kv, p->size);
    if (p->size == p->padded) return (HeadRows){from, t.stride};
    copy_rows(from, t.stride, keys, p->size, p->padded, packed);
    return (HeadRows){packed, p->padded};
}

/* scores (keys) = k q: a key per lane. query: even and odd elements of each pair. Meanwhile later keys
 * and the block's values come to the caches: rows of a head are too far apart for the hardware to prefetch
 * them. */
static __attribute__((noinline)) void query_scores(HeadRows k, HeadRows v, int64_t keys, int64_t width,
                                                   const float (*query)[2], float *scores) {
    for (int64_t j = 0; j < keys; j += SIDE) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t d = 0; d < width; d += DEPTH) {
            __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
            __m512i pairs[SIDE];
            for (int64_t i = 0; i < SIDE; i++)
                pairs[i] = j + i < keys ? _mm512_loadu_si512(k.data + (j + i) * k.stride + d)
                                        : _mm512_setzero_si512();
            amx_turn(pairs);
            for (int i = 0; i < SIDE; i++) {
                _mm_prefetch((const char *)(k.data + (j + SIDE + i) * k.stride + d), _MM_HINT_T0);
                _mm_prefetch((const char *)(v.data + (j + i) * v.stride + d), _MM_HINT_T0);
                even = _mm512_fmadd_ps(amx_evens(pairs[i]), _mm512_set1_ps(query[d / 2 + i][0]), even);
                odd = _mm512_fmadd_ps(amx_odds(pairs[i]), _mm512_set1_ps(query[d / 2 + i][1]), odd);
            }
            sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
        }
        _mm512_storeu_ps(scores + j, sum);
    }
}

static __m512 floats_of(const bf16 *x) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* `vectors` is a constant after inlining. */
static inline __attribute__((always_inline)) void value_columns(const int vectors, const float *weights,
                                                                HeadRows v, int64_t keys, float *sums) {
    for (int64_t j = 0; j < KEY_BLOCK; j += DEPTH) {
        __m512 even[4] = {0}, odd[4] = {0}; // of even and of odd keys
        for (int64_t i = j; i < j + DEPTH && i < keys; i += 2) {
            const bf16 *row = v.data + i * v.stride;
            for (int n = 0; n < vectors; n++)
                even[n] = _mm512_fmadd_ps(floats_of(row + n * SIDE), _mm512_set1_ps(weights[i]), even[n]);
            if (i + 1 == keys) break;
            row += v.stride;
            for (int n = 0; n < vectors; n++)
                odd[n] = _mm512_fmadd_ps(floats_of(row + n * SIDE), _mm512_set1_ps(weights[i + 1]), odd[n]);
        }
        for (int n = 0; n < vectors; n++) {
            const __m512 piece = _mm512_add_ps(even[n], odd[n]);
            _mm512_storeu_ps(sums + n * SIDE, _mm512_add_ps(_mm512_loadu_ps(sums + n * SIDE), piece));
        }
    }
}

/* sums += the weighted values: a column per lane. */
static __attribute__((noinline)) void query_values(const float *weights, HeadRows v, int64_t keys,
                                                   int64_t width, float *sums) {
    int64_t d = 0;
    for (; d + 4 * SIDE <= width; d += 4 * SIDE)
        value_columns(4, weights, (HeadRows){v.data + d, v.stride}, keys, sums + d);
    if (d < width) value_columns(2, weights, (HeadRows){v.data + d, v.stride}, keys, sums + d);
}

int64_t amx_query_floats(const AttentionProblem *p) {
    return p->padded * 2 + KEY_BLOCK + KEY_BLOCK * p->padded / 2;
}

void amx_forward_query(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, float *scratch) {
    const AttentionForward *a = p->a;
    float(*query)[2] = (float(*)[2])carve(&scratch, p->padded);
    float *sums = carve(&scratch, p->padded), *scores = carve(&scratch, KEY_BLOCK);
    bf16 *packed = carve_rows(&scratch, KEY_BLOCK * p->padded);
    const int64_t row = b * p->queries + i, kv = h / p->group;
    const int64_t start = attention_first_key(a, b, i), end = attention_visible(p, b, i);
    const bf16 *q = row_of(a->q, row, h, p->size);
    const unsigned mode = _mm_getcsr(), flushing = mode | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON;
    float maximum = -INFINITY, sum = 0;
    for (int64_t d = 0; d < p->padded; d++) {
        query[d / 2][d % 2] = d < p->size ? bfloat16_to_float(q[d].bits) : 0;
        sums[d] = 0;
    }
    for (int64_t j = attention_first_block(p, b, i); j < end; j += KEY_BLOCK) {
        const int64_t keys = least(end - j, KEY_BLOCK), at = b * p->key_rows + j;
        const HeadRows k = head_rows(p, p->k, at, kv, keys, packed);
        const HeadRows coming = {row_of(p->v, at, kv, p->size), p->v.stride};
        _mm_setcsr(flushing);
        query_scores(k, coming, keys, p->padded, query, scores);
        _mm_setcsr(mode);
        for (int64_t key = 0; key < keys; key++) scores[key] *= (float)a->scale;
        for (int64_t key = 0; key < start - j && key < keys; key++) scores[key] = -INFINITY;
        const float correction = softmax_query(keys, scores, &maximum, &sum);
        for (int64_t key = 0; key < KEY_BLOCK; key += SIDE) {
            const __m256i narrowed = narrow(scores + key);
            _mm512_storeu_ps(scores + key, floats_of((const bf16 *)&narrowed));
        }
        for (int64_t d = 0; d < p->padded; d++) sums[d] *= correction;
        const HeadRows v = head_rows(p, p->v, at, kv, keys, packed);
        _mm_setcsr(flushing);
        query_values(scores, v, keys, p->padded, sums);
        _mm_setcsr(mode);
    }
    write_output(p, b, h, i, sums, maximum, sum);
}

/* ---- the backward pass ---- */

/* Scratch of one thread in the backward pass. */
typedef struct {
    bf16 *keys, *values, *keys_across; // copies of all S keys, block by block: (keys, D), (keys, D), (D,
                                       // keys)
    float *dk, *dv;                    // (S, D), sums over all queries of the group
    bf16 *rows;                        // (queries, D)
    AmxPair *queries, *queries_across; // (queries / 2, D) and (D / 2, queries)
    AmxPair *dy, *dy_across;           // the same shapes
    float *dq, *turned;                // (D, queries), (queries, D)
    float *weights, *dscores;          // (keys, queries)
    bf16 *narrow;                      // (keys, queries)
    AmxPair *pairs;                    // (keys / 2, queries)
    float lse[QUERY_BLOCK], delta[QUERY_BLOCK];
} Backward;

/* S, rounded up to whole blocks. */
static int64_t padded_keys(const AttentionProblem *p) {
    return pieces(p->keys, BLOCK) * BLOCK;
}

int64_t amx_backward_floats(const AttentionProblem *p) {
    return padded_keys(p) * p->padded * 7 / 2 + BLOCK * p->padded * 9 / 2 + SQUARE * 3;
}

static Backward backward_scratch(const AttentionProblem *p, float *scratch) {
    int64_t all = padded_keys(p) * p->padded, block = BLOCK * p->padded;
    return (Backward){.keys = carve_rows(&scratch, all),
                      .values = carve_rows(&scratch, all),
                      .keys_across = carve_rows(&scratch, all),
                      .dk = carve(&scratch, all),
                      .dv = carve(&scratch, all),
                      .rows = carve_rows(&scratch, block),
                      .queries = carve_pairs(&scratch, block / 2),
                      .queries_across = carve_pairs(&scratch, block / 2),
                      .dy = carve_pairs(&scratch, block / 2),
                      .dy_across = carve_pairs(&scratch, block / 2),
                      .dq = carve(&scratch, block),
                      .turned = carve(&scratch, block),
                      .weights = carve(&scratch, SQUARE),
                      .dscores = carve(&scratch, SQUARE),
                      .narrow = carve_rows(&scratch, SQUARE),
                      .pairs = carve_pairs(&scratch, SQUARE / 2)};
}

/* Packs a block of queries, or of dy, into both operand formats. */
static void pack_queries(const AttentionProblem *p, Tensor t, int64_t row, int64_t h, int64_t count,
                         const Backward *s, AmxPair *pairs, AmxPair *across) {
    copy_rows(row_of(t, row, h, p->size), t.stride, count, p->size, p->padded, s->rows);
    pairs_of_rows(s->rows, p->padded, pairs);
    transpose_words(s->rows, BLOCK, p->padded / 2, across);
}

static float dot(const bf16 *x, const bf16 *y, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < count; d++) sum += bfloat16_to_float(x[d].bits) * bfloat16_to_float(y[d].bits);
    return sum;
}

static void backward_block(const AttentionProblem *p, const AttentionBackward *g, int64_t b, int64_t h,
                           int64_t first, Backward *s) {
    const AttentionForward *a = p->a;
    const int64_t padded = p->padded, size = p->size, row = b * p->queries + first;
    const int64_t count = least(p->queries - first, BLOCK);
    const float *lse = float_row(a->lse, b * p->heads + h) + first;
    for (int64_t i = 0; i < BLOCK; i++) {
        /* For a query that sees no key, and for padding, exp(score - inf) = 0 makes every weight 0. */
        s->lse[i] = i < count && lse[i] != -INFINITY ? lse[i] : INFINITY;
        s->delta[i] =
            i < count ? dot(row_of(g->dy, row + i, h, size), row_of(a->y, row + i, h, size), size) : 0;
    }
    pack_queries(p, a->q, row, h, count, s, s->queries, s->queries_across);
    pack_queries(p, g->dy, row, h, count, s, s->dy, s->dy_across);
    memset(s->dq, 0, (size_t)(padded * BLOCK) * sizeof *s->dq);
    for (int64_t j = attention_first_block(p, b, first), end = attention_visible(p, b, first + count - 1);
         j < end; j += BLOCK) {
        int64_t keys = least(end - j, BLOCK), at = j * padded;
        amx_product(BLOCK, BLOCK, padded, s->keys + at, padded, s->queries_across, BLOCK, s->weights, BLOCK,
                    false);
        amx_product(BLOCK, BLOCK, padded, s->values + at, padded, s->dy_across, BLOCK, s->dscores, BLOCK,
                    false);
        scale_scores(keys, (float)a->scale, s->weights);
        scale_scores(keys, 1, s->dscores);
        attention_mask(p, b, first, j, keys, s->weights);
        attention_drop(p, b, h, first, j, count, keys, s->dscores);
        softmax_gradient(keys, (float)a->scale, s->lse, s->delta, s->weights, s->dscores);
        attention_drop(p, b, h, first, j, count, keys, s->weights);
        rows_of_floats(s->weights, s->narrow);
        amx_product(BLOCK, padded, BLOCK, s->narrow, BLOCK, s->dy, padded, s->dv + at, padded, true);
        rows_of_floats(s->dscores, s->narrow);
        amx_product(BLOCK, padded, BLOCK, s->narrow, BLOCK, s->queries, padded, s->dk + at, padded, true);
        pairs_of_floats(s->dscores, s->pairs);
        amx_product(padded, BLOCK, BLOCK, s->keys_across + at, BLOCK, s->pairs, BLOCK, s->dq, BLOCK, true);
    }
    transpose_words(s->dq, padded, BLOCK, s->turned);
    for (int64_t i = 0; i < count; i++)
        write_row(s->turned + i * padded, size, row_of(g->dq, row + i, h, size));
}

void amx_backward_head(const AttentionProblem *p, const AttentionBackward *g, int64_t b, int64_t kv,
                       float *scratch) {
    const int64_t padded = p->padded, size = p->size, rows = b * p->key_rows;
    Backward s = backward_scratch(p, scratch);
    memset(s.dk, 0, (size_t)(padded_keys(p) * padded) * sizeof *s.dk);
    memset(s.dv, 0, (size_t)(padded_keys(p) * padded) * sizeof *s.dv);
    for (int64_t j = 0; j < p->keys; j += BLOCK) {
        int64_t keys = least(p->keys - j, BLOCK), at = j * padded;
        copy_rows(row_of(p->k, rows + j, kv, size), p->k.stride, keys, size, padded, s.keys + at);
        copy_rows(row_of(p->v, rows + j, kv, size), p->v.stride, keys, size, padded, s.values + at);
        pairs_of_rows(s.keys + at, padded, s.queries);
        transpose_words(s.queries, BLOCK / 2, padded, s.keys_across + at);
    }
    amx_begin();
    for (int64_t h = kv * p->group; h < (kv + 1) * p->group; h++)
        for (int64_t first = 0; first < p->queries; first += BLOCK) backward_block(p, g, b, h, first, &s);
    _tile_release();
    for (int64_t j = 0; j < p->keys; j++) {
        write_row(s.dk + j * padded, size, row_of(g->dk, rows + j, kv, size));
        write_row(s.dv + j * padded, size, row_of(g->dv, rows + j, kv, size));
    }
}

#endif
