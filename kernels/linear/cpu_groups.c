#include "kernels/linear/cpu_groups.h"

#include "base/bfloat16.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { SUMS = 8, AHEAD = 1024 }; // sums of a group's products; bytes of weights that are asked for early

typedef int8_t Codes __attribute__((vector_size(GROUP)));
typedef int32_t Words __attribute__((vector_size(SUMS * sizeof(int32_t))));
typedef float Floats __attribute__((vector_size(SUMS * sizeof(float))));

static Codes codes8(const uint8_t *from) {
    Codes codes;
    memcpy(&codes, from, sizeof codes);
    return codes;
}

static Codes codes4(const uint8_t *from) {
    typedef uint8_t Pairs __attribute__((vector_size(GROUP / 2)));
    Pairs pairs;
    memcpy(&pairs, from, sizeof pairs);
    const Pairs low = pairs & 15, high = pairs >> 4;
    return (Codes)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                          17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31) -
           8;
}

/* SUMS sums, each of four neighbours' products. The instructions multiply unsigned bytes by signed ones, so a weight
 * leaves its sign to x. Two products of magnitudes up to 127 fit in 16 bits. */
static Words products(Codes weight, Codes x) {
#if defined(__AVX2__)
    const __m256i magnitude = _mm256_abs_epi8((__m256i)weight), other = _mm256_sign_epi8((__m256i)x, (__m256i)weight);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return (Words)_mm256_dpbusd_epi32(_mm256_setzero_si256(), magnitude, other);
#else
    return (Words)_mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, other), _mm256_set1_epi16(1));
#endif
#else
    Words sums = {0};
    for (int i = 0; i < GROUP; i++) sums[i / 4] += weight[i] * x[i];
    return sums;
#endif
}

/* The dtype is a constant where this is called, so that the loop does not ask for it. */
static inline __attribute__((always_inline)) void dots(Dtype dtype, Tensor x, int64_t n, Tensor weight,
                                                       const int64_t rows[GROUP_STREAMS],
                                                       Floats lanes[GROUP_STREAMS]) {
    const int64_t groups = tensor_width(weight) / GROUP, bytes = dtype == I8 ? GROUP : GROUP / 2;
    const uint8_t *codes = (const uint8_t *)x.data + n * groups * GROUP;
    const uint16_t *x_scales = (const uint16_t *)x.scales + n * groups;
    for (int64_t g = 0; g < groups; g++) {
        const Codes x_codes = codes8(codes + g * GROUP);
        const float x_scale = bfloat16_to_float(x_scales[g]);
        for (int s = 0; s < GROUP_STREAMS; s++) {
            const int64_t group = rows[s] * groups + g;
            const uint8_t *from = (const uint8_t *)weight.data + group * bytes;
            const float scale = x_scale * bfloat16_to_float(((const uint16_t *)weight.scales)[group]);
            __builtin_prefetch(from + AHEAD);
            lanes[s] += scale * __builtin_convertvector(
                                    products(dtype == I8 ? codes8(from) : codes4(from), x_codes), Floats);
        }
    }
}

void group_dots(Tensor x, int64_t n, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS]) {
    Floats lanes[GROUP_STREAMS] = {{0}};
    if (weight.dtype == I8)
        dots(I8, x, n, weight, rows, lanes);
    else
        dots(I4, x, n, weight, rows, lanes);
    for (int s = 0; s < GROUP_STREAMS; s++) {
        sums[s] = 0;
        for (int i = 0; i < SUMS; i++) sums[s] += lanes[s][i];
    }
}
