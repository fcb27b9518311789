#include "kernels/attention/cpu_amx.h"

#ifdef __AMX_BF16__

#include "base/bfloat16.h"
#include "kernels/device/amx.h"
#include "kernels/device/amx_turn.h"

/* One query with the bits of amx_forward_block, in whose tiles it would be alone. Products have the
 * arithmetic of a tile's (kernels/linear/cpu_amx_few.c): even and odd terms of 32 are summed apart, and
 * denormals are zero. They are not inlined, because the compiler may move arithmetic across the change of
 * its mode. */

enum { SIDE = AMX_SIDE, DEPTH = AMX_DEPTH };

/* A view of a head's rows of one block of keys, in whole pieces: in place, or else copied. */
typedef struct {
    const bf16 *data;
    int64_t stride;
} HeadRows;

static HeadRows rows_of(const AttentionProblem *p, Tensor t, int64_t row, int64_t kv, int64_t keys,
                        bf16 *packed) {
    const bf16 *from = (const bf16 *)t.data + row * t.stride + kv * p->size;
    if (p->size == p->padded) return (HeadRows){from, t.stride};
    memset(packed, 0, (size_t)(keys * p->padded) * sizeof *packed);
    for (int64_t i = 0; i < keys; i++)
        memcpy(packed + i * p->padded, from + i * t.stride, (size_t)p->size * sizeof *packed);
    return (HeadRows){packed, p->padded};
}

/* scores (keys) = k q: a key per lane. query: even and odd elements of each pair. Meanwhile later keys
 * and the block's values come to the caches: rows of a head are too far apart for the hardware to prefetch
 * them. */
static __attribute__((noinline)) void query_scores(HeadRows k, HeadRows v, int64_t keys, int64_t width,
                                                   const float (*query)[2], float *scores) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
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
                const __m512 evens = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
                const __m512 odds = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], upper));
                _mm_prefetch((const char *)(k.data + (j + SIDE + i) * k.stride + d), _MM_HINT_T0);
                _mm_prefetch((const char *)(v.data + (j + i) * v.stride + d), _MM_HINT_T0);
                even = _mm512_fmadd_ps(evens, _mm512_set1_ps(query[d / 2 + i][0]), even);
                odd = _mm512_fmadd_ps(odds, _mm512_set1_ps(query[d / 2 + i][1]), odd);
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
    bf16 *packed = (bf16 *)carve(&scratch, KEY_BLOCK * p->padded / 2);
    const int64_t row = b * p->queries + i, kv = h / p->group;
    const int64_t start = attention_first_key(a, b, i), end = attention_visible(p, b, i);
    const bf16 *q = (const bf16 *)a->q.data + row * a->q.stride + h * p->size;
    const unsigned mode = _mm_getcsr(), flushing = mode | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON;
    float maximum = -INFINITY, sum = 0;
    for (int64_t d = 0; d < p->padded; d++) {
        query[d / 2][d % 2] = d < p->size ? bfloat16_to_float(q[d].bits) : 0;
        sums[d] = 0;
    }
    for (int64_t j = attention_first_block(p, b, i); j < end; j += KEY_BLOCK) {
        const int64_t keys = end - j < KEY_BLOCK ? end - j : KEY_BLOCK, at = b * p->key_rows + j;
        const HeadRows k = rows_of(p, p->k, at, kv, keys, packed);
        const HeadRows coming = {(const bf16 *)p->v.data + at * p->v.stride + kv * p->size, p->v.stride};
        _mm_setcsr(flushing);
        query_scores(k, coming, keys, p->padded, query, scores);
        _mm_setcsr(mode);
        for (int64_t key = 0; key < keys; key++) scores[key] *= (float)a->scale;
        for (int64_t key = 0; key < start - j && key < keys; key++) scores[key] = -INFINITY;
        const float correction = softmax_query(keys, scores, &maximum, &sum);
        for (int64_t key = 0; key < KEY_BLOCK; key += SIDE) {
            const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(scores + key));
            _mm512_storeu_ps(scores + key, floats_of((const bf16 *)&narrow));
        }
        for (int64_t d = 0; d < p->padded; d++) sums[d] *= correction;
        const HeadRows v = rows_of(p, p->v, at, kv, keys, packed);
        _mm_setcsr(flushing);
        query_values(scores, v, keys, p->padded, sums);
        _mm_setcsr(mode);
    }
    bf16 *y = (bf16 *)a->y.data + row * a->y.stride + h * p->size;
    const float inverse = sum == 0 ? 0 : 1 / sum;
    for (int64_t d = 0; d < p->size; d++) y[d].bits = bfloat16_from_float(sums[d] * inverse);
    if (!tensor_empty(a->lse)) float_row(a->lse, b * p->heads + h)[i] = maximum + logf(sum);
}

#endif
