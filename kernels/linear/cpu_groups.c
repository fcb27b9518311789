#include "kernels/linear/cpu_groups.h"

#include "base/groups.h"
#include "kernels/simd.h"

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

/* Adds to each row the products of its word, exactly; `codes` are prepared. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
/* The instruction multiplies unsigned bytes by signed ones, so it gets u = code + 128:
 *     sum code x = sum u x - 128 sum x */
static inline Bytes prepared(Bytes codes) {
    return codes ^ 128;
}

static inline Words products_begin(const GroupOfX *x) {
    return (Words){0} - 128 * x->sum;
}

static inline Words add_products(Words sums, Bytes codes, Words x) {
    return (Words)_mm256_dpbusd_epi32((__m256i)sums, (__m256i)codes, (__m256i)x);
}
#else
static inline Bytes prepared(Bytes codes) {
    return codes;
}

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

/* The prepared codes for the half bytes. */
static inline Bytes levels_of(Bytes halves) {
#if defined(__AVX2__)
    const __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)groups_levels));
    return (Bytes)_mm256_shuffle_epi8((__m256i)prepared((Bytes)levels), (__m256i)halves);
#else
    for (int i = 0; i < PART; i++) halves[i] = (uint8_t)groups_levels[halves[i]];
    return prepared(halves);
#endif
}

/* A tile's codes, prepared: word w of each row. */
static inline __attribute__((always_inline)) void load_tile(Dtype dtype, const uint8_t *codes,
                                                            Bytes parts[WORDS]) {
    Bytes part;
    for (int w = 0; w < (dtype == I8 ? WORDS : WORDS / 2); w++) {
        memcpy(&part, codes + w * PART, PART);
        parts[w] = dtype == I8 ? prepared(part) : levels_of(part & 15);
        if (dtype == I4) parts[w + WORDS / 2] = levels_of(part >> 4);
    }
}

/* Words of four codes of x, one for all rows of a tile. */
static inline __attribute__((always_inline)) void spread_words(const GroupOfX *x, Words words[WORDS]) {
    for (int w = 0; w < WORDS; w++) {
        int32_t word;
        memcpy(&word, x->codes + 4 * w, sizeof word);
        words[w] = (Words){0} + word;
    }
}

/* The scales of a tile's rows in fp32. */
static inline Floats tile_scales(const uint16_t *scales) {
    Halves halves;
    memcpy(&halves, scales, sizeof halves);
#if defined(__AVX2__) // GCC 12 makes five instructions of these two
    return (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)halves), 16);
#else
    return (Floats)(__builtin_convertvector(halves, Words) << 16);
#endif
}

static inline __attribute__((always_inline)) Floats tile_sums(const Bytes parts[WORDS], const GroupOfX *x,
                                                              const Words words[WORDS]) {
    Words sums = products_begin(x);
    for (int w = 0; w < WORDS; w++) sums = add_products(sums, parts[w], words[w]);
    return __builtin_convertvector(sums, Floats) * x->scale;
}

/* The dtype and the number of rows of x are constants after inlining, so the loops have no branch on them. */
static inline __attribute__((always_inline)) void
add_tiles(Dtype dtype, int rows, int64_t groups, const GroupOfX *x, const uint8_t *const codes[GROUP_STREAMS],
          const uint16_t *const scales[GROUP_STREAMS], Floats lanes[GROUP_TOGETHER][GROUP_STREAMS]) {
    const int64_t bytes = GROUP_ROWS * (dtype == I8 ? GROUP : GROUP / 2);
    for (int64_t g = 0; g < groups; g++, x++) {
        Words words[GROUP_TOGETHER][WORDS];
        for (int r = 0; r < rows; r++) spread_words(x + r * groups, words[r]);
        for (int s = 0; s < GROUP_STREAMS; s++) {
            const uint8_t *tile = codes[s] + g * bytes;
            Bytes parts[WORDS];
            for (int64_t i = 0; i < bytes; i += LINE) simd_prefetch_weights(tile + i);
            load_tile(dtype, tile, parts);
            const Floats scale = tile_scales(scales[s] + g * GROUP_ROWS);
            for (int r = 0; r < rows; r++) lanes[r][s] += tile_sums(parts, x + r * groups, words[r]) * scale;
        }
    }
}

void group_dots(const GroupOfX *x, int64_t count, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_TOGETHER][GROUP_STREAMS][GROUP_ROWS]) {
    const int64_t width = tensor_width(weight), groups = width / GROUP;
    Floats lanes[GROUP_TOGETHER][GROUP_STREAMS] = {{{0}}};
    const uint8_t *codes[GROUP_STREAMS];
    const uint16_t *scales[GROUP_STREAMS];
    for (int s = 0; s < GROUP_STREAMS; s++) {
        codes[s] = (const uint8_t *)weight.data + dtype_bytes(weight.dtype, rows[s] * width);
        scales[s] = (const uint16_t *)weight.scales + rows[s] * groups;
    }
    if (weight.dtype == I8 && count == 1)
        add_tiles(I8, 1, groups, x, codes, scales, lanes);
    else if (weight.dtype == I8)
        add_tiles(I8, GROUP_TOGETHER, groups, x, codes, scales, lanes);
    else if (count == 1)
        add_tiles(I4, 1, groups, x, codes, scales, lanes);
    else
        add_tiles(I4, GROUP_TOGETHER, groups, x, codes, scales, lanes);
    memcpy(sums, lanes, sizeof lanes);
}
