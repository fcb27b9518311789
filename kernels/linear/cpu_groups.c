#include "kernels/linear/cpu_groups.h"

#include "base/groups.h"

#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Without AVX, GCC warns that vectors as arguments have no common ABI, but only this file passes them. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum {
    WORDS = GROUP / 4,     // words of four codes in a group
    PART = GROUP_ROWS * 4, // bytes of one word of each row
    LINE = 64,             // bytes of a cache line
    AHEAD = 2048,          // prefetch distance in bytes of weights
};

typedef uint8_t Bytes __attribute__((vector_size(PART)));
typedef int32_t Words __attribute__((vector_size(PART)));
typedef float Floats __attribute__((vector_size(PART)));
typedef uint16_t Halves __attribute__((vector_size(PART / 2)));

void group_of_x(const float x[GROUP], GroupOfX *group) {
    float most = 0;
    int32_t sum = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < GROUP; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float inverse = most >= 0x1p-120f ? 127 / most : 0; // because 1 / most would overflow
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < GROUP; i++) {
        const int32_t code = (int32_t)rintf(x[i] * inverse);
        group->codes[i] = (int8_t)code;
        sum += code;
    }
    group->scale = most / 127;
    group->sum = sum;
}

/* Adds to each row the products of its word, exactly. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
/* The instruction multiplies unsigned bytes by signed ones, so it gets u = code + 128:
 *     sum code x = sum u x - 128 sum x */
static inline Words products_begin(const GroupOfX *x) {
    return (Words){0} - 128 * x->sum;
}

static inline Words add_products(Words sums, Bytes codes, Words x) {
    return (Words)_mm256_dpbusd_epi32((__m256i)sums, (__m256i)(codes ^ 128), (__m256i)x);
}
#else
static inline Words products_begin(const GroupOfX *x) {
    (void)x;
    return (Words){0};
}

static inline Words add_products(Words sums, Bytes codes, Words x) {
#if defined(__AVX2__)
    /* This instruction, too, multiplies unsigned bytes by signed ones, so the code's sign is moved to x. Two
     * products fit in 16 bits. */
    const __m256i size = _mm256_abs_epi8((__m256i)codes),
                  other = _mm256_sign_epi8((__m256i)x, (__m256i)codes);
    return sums + (Words)_mm256_madd_epi16(_mm256_maddubs_epi16(size, other), _mm256_set1_epi16(1));
#else
    for (int i = 0; i < PART; i++) sums[i / 4] += (int8_t)codes[i] * (int8_t)((Bytes)x)[i];
    return sums;
#endif
}
#endif

/* The codes for the half bytes. */
static inline Bytes levels_of(Bytes halves) {
#if defined(__AVX2__)
    const __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)groups_levels));
    return (Bytes)_mm256_shuffle_epi8(levels, (__m256i)halves);
#else
    for (int i = 0; i < PART; i++) halves[i] = (uint8_t)groups_levels[halves[i]];
    return halves;
#endif
}

static inline __attribute__((always_inline)) Words tile_sums(Dtype dtype, const uint8_t *codes,
                                                             const Words x[WORDS], Words sums) {
    Bytes part;
    for (int w = 0; w < (dtype == I8 ? WORDS : WORDS / 2); w++) {
        memcpy(&part, codes + w * PART, PART);
        sums = add_products(sums, dtype == I8 ? part : levels_of(part & 15), x[w]);
        if (dtype == I4) sums = add_products(sums, levels_of(part >> 4), x[w + WORDS / 2]);
    }
    return sums;
}

/* The dtype is a constant after inlining, so the loop has no branch on it. */
static inline __attribute__((always_inline)) void add_tiles(Dtype dtype, int64_t groups, const GroupOfX *x,
                                                            const uint8_t *const codes[GROUP_STREAMS],
                                                            const uint16_t *const scales[GROUP_STREAMS],
                                                            Floats lanes[GROUP_STREAMS]) {
    const int64_t bytes = GROUP_ROWS * (dtype == I8 ? GROUP : GROUP / 2);
    for (int64_t g = 0; g < groups; g++, x++) {
        Words words[WORDS];
        for (int w = 0; w < WORDS; w++) {
            int32_t word;
            memcpy(&word, x->codes + 4 * w, sizeof word);
            words[w] = (Words){0} + word;
        }
        for (int s = 0; s < GROUP_STREAMS; s++) {
            const uint8_t *tile = codes[s] + g * bytes;
            Halves halves;
            for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(tile + AHEAD + i);
            memcpy(&halves, scales[s] + g * GROUP_ROWS, sizeof halves);
            const Words sums = tile_sums(dtype, tile, words, products_begin(x));
            const Floats scale = (Floats)(__builtin_convertvector(halves, Words) << 16); // bf16 to fp32
            lanes[s] += __builtin_convertvector(sums, Floats) * x->scale * scale;
        }
    }
}

void group_dots(const GroupOfX *x, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS][GROUP_ROWS]) {
    const int64_t width = tensor_width(weight);
    Floats lanes[GROUP_STREAMS] = {{0}};
    const uint8_t *codes[GROUP_STREAMS];
    const uint16_t *scales[GROUP_STREAMS];
    for (int s = 0; s < GROUP_STREAMS; s++) {
        codes[s] = (const uint8_t *)weight.data + dtype_bytes(weight.dtype, rows[s] * width);
        scales[s] = (const uint16_t *)weight.scales + rows[s] * width / GROUP;
    }
    if (weight.dtype == I8)
        add_tiles(I8, width / GROUP, x, codes, scales, lanes);
    else
        add_tiles(I4, width / GROUP, x, codes, scales, lanes);
    memcpy(sums, lanes, sizeof lanes);
}
