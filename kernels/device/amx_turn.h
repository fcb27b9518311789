/* amx_turn: transposes 16 vectors of 16 words in registers; the elements of pairs as floats. Only for
 * processors with AMX. */
#pragma once

#include <immintrin.h>

static inline __attribute__((always_inline)) void amx_turn(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { // r[i + c]: rows i to i + 3 of columns c, c + 4, c + 8, c + 12
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88); // columns c and c + 8 of rows 0 to 7
        t[c + 4] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xDD);
        t[c + 8] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88); // of rows 8 to 15
        t[c + 12] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xDD);
    }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
        r[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
        r[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xDD);
        r[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xDD);
    }
}

/* The first and the second element of each pair of bf16. */
static inline __m512 amx_evens(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
static inline __m512 amx_odds(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}
