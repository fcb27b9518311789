#include "kernels/linear/cpu_groups.h"

#include "base/bfloat16.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
    SUMS = GROUP / 4, // partial sums of a group
    PIECE = 64,       // groups whose scales are multiplied at a time
    AHEAD = 1024,     // prefetch distance in bytes of weights
};

typedef uint8_t Bytes __attribute__((vector_size(GROUP)));
typedef int32_t Words __attribute__((vector_size(SUMS * sizeof(int32_t))));
typedef float Floats __attribute__((vector_size(SUMS * sizeof(float))));

/* Loads a group's codes as stored; I4 stores code + 8. */
static inline Bytes load_codes(Dtype dtype, const uint8_t *from) {
    typedef uint8_t Pairs __attribute__((vector_size(GROUP / 2)));
    Bytes codes;
    Pairs pairs;
    if (dtype == I8) {
        memcpy(&codes, from, sizeof codes);
        return codes;
    }
    memcpy(&pairs, from, sizeof pairs);
    return __builtin_shufflevector(pairs & 15, pairs >> 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                   15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* Each of the SUMS adds four neighbours' products, exactly. `offset` is product_offset's. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
/* The instruction multiplies unsigned bytes by signed ones, so it gets u = code + bias:
 *     sum code x = sum u x - bias sum x */
static inline Words product_offset(Dtype dtype, Bytes x) {
    const __m256i bias = _mm256_set1_epi8(dtype == I8 ? (char)128 : 8);
    return -(Words)_mm256_dpbusd_epi32(_mm256_setzero_si256(), bias, (__m256i)x);
}

static inline Words products(Dtype dtype, Bytes codes, Bytes x, Words offset) {
    const Bytes biased = dtype == I8 ? codes ^ 128 : codes;
    return (Words)_mm256_dpbusd_epi32((__m256i)offset, (__m256i)biased, (__m256i)x);
}
#else
static inline Words product_offset(Dtype dtype, Bytes x) {
    (void)dtype, (void)x;
    return (Words){0};
}

static inline Words products(Dtype dtype, Bytes codes, Bytes x, Words offset) {
    if (dtype == I4) codes -= 8;
#if defined(__AVX2__)
    /* This instruction, too, multiplies unsigned bytes by signed ones, so the code's sign is moved to x. Two
     * products fit in 16 bits. */
    const __m256i size = _mm256_abs_epi8((__m256i)codes),
                  other = _mm256_sign_epi8((__m256i)x, (__m256i)codes);
    return offset + (Words)_mm256_madd_epi16(_mm256_maddubs_epi16(size, other), _mm256_set1_epi16(1));
#else
    for (int i = 0; i < GROUP; i++) offset[i / 4] += (int8_t)codes[i] * (int8_t)x[i];
    return offset;
#endif
}
#endif

/* Adds at most PIECE groups from `first` on. The dtype is a constant after inlining, so the loop has no
 * branch on it. */
static inline __attribute__((always_inline)) void add_dots(Dtype dtype, Tensor x, int64_t x_first,
                                                           Tensor weight, const int64_t firsts[GROUP_STREAMS],
                                                           int64_t count, Floats lanes[GROUP_STREAMS]) {
    const int64_t bytes = dtype == I8 ? GROUP : GROUP / 2;
    const uint8_t *x_codes = (const uint8_t *)x.data + x_first * GROUP, *codes[GROUP_STREAMS];
    const uint16_t *x_scales = (const uint16_t *)x.scales + x_first;
    float factors[GROUP_STREAMS][PIECE];
    for (int s = 0; s < GROUP_STREAMS; s++) {
        const uint16_t *scales = (const uint16_t *)weight.scales + firsts[s];
        codes[s] = (const uint8_t *)weight.data + firsts[s] * bytes;
#pragma omp simd
        for (int64_t g = 0; g < count; g++)
            factors[s][g] = bfloat16_to_float(x_scales[g]) * bfloat16_to_float(scales[g]);
    }
    for (int64_t g = 0; g < count; g++) {
        const Bytes of_x = load_codes(I8, x_codes + g * GROUP);
        const Words offset = product_offset(dtype, of_x);
        for (int s = 0; s < GROUP_STREAMS; s++) {
            const uint8_t *from = codes[s] + g * bytes;
            __builtin_prefetch(from + AHEAD);
            const Words sums = products(dtype, load_codes(dtype, from), of_x, offset);
            lanes[s] += factors[s][g] * __builtin_convertvector(sums, Floats);
        }
    }
}

void group_dots(Tensor x, int64_t n, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS]) {
    const int64_t groups = tensor_width(weight) / GROUP;
    Floats lanes[GROUP_STREAMS] = {{0}};
    for (int64_t g = 0; g < groups; g += PIECE) {
        const int64_t count = groups - g < PIECE ? groups - g : PIECE;
        int64_t firsts[GROUP_STREAMS];
        for (int s = 0; s < GROUP_STREAMS; s++) firsts[s] = rows[s] * groups + g;
        if (weight.dtype == I8)
            add_dots(I8, x, n * groups + g, weight, firsts, count, lanes);
        else
            add_dots(I4, x, n * groups + g, weight, firsts, count, lanes);
    }
    for (int s = 0; s < GROUP_STREAMS; s++) {
        sums[s] = 0;
        for (int i = 0; i < SUMS; i++) sums[s] += lanes[s][i];
    }
}
