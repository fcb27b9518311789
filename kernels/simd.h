/* simd: fp32 code shared by the fused CPU forms: scalar functions that GCC and Clang vectorize inside
 * `#pragma omp simd` loops on any instruction set, this machine's vector type for loops that keep sums in
 * registers, and rows of tensors. */
#pragma once

#include "base/bfloat16.h"
#include "kernels/op.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

/* A vector register of LANES floats. A LanesView pointer need not be aligned. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { CACHE_LINE_FLOATS = 16 };
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef Lanes LanesView __attribute__((aligned(sizeof(float)), may_alias));

/* Number of threads of a parallel region, set when the device was opened. */
static inline int cpu_threads(const Ctx *ctx) {
    return ctx->device->threads;
}

/* Executes `call` for each row i, in parallel on the threads of the caller's `ctx`. A single row, as in
 * decoding, needs no parallel region, which would take 0.3 us even with one thread. */
#define SIMD_EACH_ROW(i, rows, call)                                                                         \
    do {                                                                                                     \
        if ((rows) == 1) {                                                                                   \
            const int64_t i = 0;                                                                             \
            call;                                                                                            \
            break;                                                                                           \
        }                                                                                                    \
        SIMD_PARALLEL_FOR                                                                                    \
        for (int64_t i = 0; i < (rows); i++) call;                                                           \
    } while (0)
#define SIMD_PARALLEL_FOR _Pragma("omp parallel for num_threads(cpu_threads(ctx)) schedule(static)")

/* Prefetches weights that a dot product reads soon, into the L2 cache. If they were prefetched into the L1
 * cache, a product in int8 would take a fifth longer on Zen 4. */
static inline void simd_prefetch_weights(const void *at) {
    enum { AHEAD = 2048 }; // bytes
    __builtin_prefetch((const char *)at + AHEAD, 0, 2);
}

/* Rounds numbers with the processor's bf16 instruction; returns false if it has none. The compiler's own
 * rounding would take a third of the time of a loop of some dozen operations. Magnitudes below 1.2e-38 become
 * 0. `streams` bypasses the caches; y must then be 64-byte aligned, and simd_streamed() must follow. */
static inline bool simd_narrow(const float *x, int64_t count, bf16 *y, bool streams) {
#if defined(__AVX512BF16__)
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        const __m512i pair =
            (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + LANES), _mm512_loadu_ps(x + i));
        if (streams)
            _mm512_stream_si512((void *)(y + i), pair);
        else
            _mm512_storeu_si512(y + i, pair);
    }
    for (; i < count; i += LANES) {
        const __mmask16 left = (__mmask16)(count - i < LANES ? (1 << (count - i)) - 1 : 0xffff);
        const __m256i some = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(left, x + i));
        _mm256_mask_storeu_epi16(y + i, left, some);
    }
    return true;
#else
    (void)x, (void)count, (void)y, (void)streams;
    return false;
#endif
}

/* Makes streamed stores visible to other threads. */
static inline void simd_streamed(void) {
#if defined(__AVX512BF16__)
    _mm_sfence();
#endif
}

static inline float *float_row(Tensor t, int64_t row) {
    return (float *)t.data + row * t.stride;
}

/* exp(x), at most 1 ulp off; 0 below -104, inf above 88.73, NaN for NaN. Cody and Waite 1980:
 *     x = n * ln2 + r,  |r| <= ln2 / 2
 *     exp(x) = 2^n * exp(r)
 * with exp(r) a polynomial whose relative error is below 4e-9. Adding 1.5 * 2^23 rounds to the integer n and
 * leaves it in the low bits. 2^n is applied in two halves, since either alone can be represented. */
static inline float simd_exp(float x) {
    const float round = 12582912.0f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 1.44269504f + round, n = shifted - round;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 0.0013814539f;
    p = p * r + 0.0083687454f;
    p = p * r + 0.041668389f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    p = (p * r) * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    uint32_t biased = bits - 0x4B400000u + 256u, half = biased >> 1; // n + 256, never negative
    return p * float_of_bits((half - 1u) << 23) * float_of_bits((biased - half - 1u) << 23);
}

/* The lower tail of the normal distribution:
 *     Phi(-|z|) = exp(-z^2 / 2) * erfcx(|z| / sqrt 2) / 2
 *     erfcx = t times a polynomial of t,  t = 1 / (1 + 0.3 |z|)
 * fitted to a relative error of 1e-7 on |z| <= 14.5. `decay` is exp(-z^2 / 2). */
static inline float simd_normal_tail(float z, float decay) {
    float t = 1.0f / (1.0f + 0.3f * (z < 0 ? -z : z));
    float p = 0.0050058537f;
    p = p * t + 0.01289546f;
    p = p * t - 0.113398276f;
    p = p * t + 0.15999319f;
    p = p * t - 0.024233349f;
    p = p * t + 0.11709316f;
    p = p * t + 0.102581285f;
    p = p * t + 0.1204155f;
    p = p * t + 0.11964722f;
    return decay * t * p;
}

/* gelu(z) = z * Phi(z), without cancellation for negative z; its slope is Phi(z) + z * phi(z). */
static inline float simd_gelu_erf(float z) {
    float tail = simd_normal_tail(z, simd_exp(-0.5f * z * z));
    return z < 0 ? z * tail : z - z * tail;
}

static inline float simd_gelu_erf_slope(float z) {
    float decay = simd_exp(-0.5f * z * z), tail = simd_normal_tail(z, decay);
    return (z < 0 ? tail : 1.0f - tail) + z * decay * 0.39894228f;
}

/* erfc(x) = 2 Phi(-sqrt 2 x) */
static inline float simd_erfc(float x) {
    float tail = 2.0f * simd_normal_tail(1.41421356f * x, simd_exp(-x * x));
    return x < 0 ? 2.0f - tail : tail;
}

/* tanh(z) = -expm1(-2|z|) / (1 + exp(-2|z|)), signed. Near 0 the absolute error stays below an ulp of 1. */
static inline float simd_tanh(float z) {
    float decay = simd_exp(z < 0 ? 2.0f * z : -2.0f * z), t = (1.0f - decay) / (1.0f + decay);
    return z < 0 ? -t : t;
}

/* exp(-2u), for the tanh form of GELU:
 *     gelu(z) = z * sigmoid(2u),  u = sqrt(2 / pi) (z + 0.044715 z^3)
 * This equals z / 2 * (1 + tanh u), without its cancellation for negative z. */
static inline float simd_gelu_decay(float z) {
    return simd_exp(z * (-1.59576912f - 0.0713548163f * z * z));
}

static inline float simd_gelu(float z) {
    return z / (1.0f + simd_gelu_decay(z));
}

/* gelu'(z) = s + z s (1 - s) 2u',  s = sigmoid(2u),  1 - s = exp(-2u) s The slope is below 1e-31 for z <
 * -9.5, and exactly 1 in fp32 for z > 16. */
static inline float simd_gelu_slope(float z) {
    z = z < -9.5f ? -9.5f : z;
    z = z > 16.0f ? 16.0f : z;
    float decay = simd_gelu_decay(z), s = 1.0f / (1.0f + decay);
    return s + z * (decay * s) * s * (1.59576912f + 0.214064449f * z * z);
}

/* silu(z) = z * sigmoid(z), and its slope s + z s (1 - s), which is below 1e-32 for z < -80. */
static inline float simd_silu(float z) {
    return z / (1.0f + simd_exp(-z));
}

static inline float simd_silu_slope(float z) {
    z = z < -80.0f ? -80.0f : z;
    float decay = simd_exp(-z), s = 1.0f / (1.0f + decay);
    return s + z * (decay * s) * s;
}
