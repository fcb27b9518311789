/* real: the number types of the CPU forms. The Makefile compiles every cpu_naive.c with -DSTORED=float,
 * bf16 and double, and every cpu_fused.c with the first two. Tensors hold `stored`, whose dtype is
 * STORED_DTYPE. Arithmetic, statistics, losses and parameter gradients are `real`: double if `stored` is
 * double, else float. load() widens; store() rounds to nearest, ties to even. Functions shared between
 * rooms carry the type in their name: TYPED(dropout_row) is dropout_row_float or dropout_row_bf16. */
#pragma once

#include "base/bfloat16.h"
#include "base/tensor.h"
#include "kernels/simd.h"

#define TYPED_JOIN(name, type)   name##_##type
#define TYPED_EXPAND(name, type) TYPED_JOIN(name, type)
#define TYPED(name)              TYPED_EXPAND(name, STORED)

#define REAL_OF_float   float
#define REAL_OF_bf16    float
#define REAL_OF_double  double
#define DTYPE_OF_float  F32
#define DTYPE_OF_bf16   BF16
#define DTYPE_OF_double F64
#define STORED_DTYPE    TYPED_EXPAND(DTYPE_OF, STORED)

typedef STORED stored;
typedef TYPED_EXPAND(REAL_OF, STORED) real;

static inline float load_float(float x) {
    return x;
}
static inline float load_bf16(bf16 x) {
    return bfloat16_to_float(x.bits);
}
static inline double load_double(double x) {
    return x;
}
#define load(x) TYPED(load)(x)

static inline float store_float(float x) {
    return x;
}
static inline bf16 store_bf16(float x) {
    return (bf16){bfloat16_from_float(x)};
}
static inline double store_double(double x) {
    return x;
}
#define store(x) TYPED(store)(x)

/* The buffer for results computed in fp32: the output itself if it is fp32, else `room`, from which they
 * are stored afterwards. */
static inline float *run_of_float(float *y, float *room) {
    (void)room;
    return y;
}
static inline float *run_of_bf16(const bf16 *y, float *room) {
    (void)y;
    return room;
}
#define run_of(y, room) TYPED(run_of)(y, room)

static inline void store_run_float(const float *run, int64_t count, float *y, bool streams) {
    (void)streams;
    if (run != y) memcpy(y, run, (size_t)count * sizeof *y);
}
static inline void store_run_bf16(const float *run, int64_t count, bf16 *y, bool streams) {
    if (simd_narrow(run, count, y, streams)) return;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = store_bf16(run[i]);
}
#define store_run(run, count, y) TYPED(store_run)(run, count, y, false)
#define stream_run(run, count, y)                                                                            \
    TYPED(store_run)(run, count, y, true) // streaming stores, as in simd_narrow()

/* LANES elements as floats. */
static inline Lanes load_lanes_float(const float *x) {
    return *(const LanesView *)x;
}
static inline Lanes load_lanes_bf16(const bf16 *x) {
#if defined(__AVX512F__)
    __m256i halves; // GCC would convert two quarters
    memcpy(&halves, x, sizeof halves);
    return (Lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#else
    typedef uint16_t Halves __attribute__((vector_size(sizeof(Lanes) / 2)));
    typedef uint32_t Words __attribute__((vector_size(sizeof(Lanes))));
    Halves halves;
    memcpy(&halves, x, sizeof halves);
    return (Lanes)(__builtin_convertvector(halves, Words) << 16);
#endif
}
#define load_lanes(x) TYPED(load_lanes)(x)

/* Dot products, PRODUCTS elements at a time, in any order. A 32-bit word holds two bf16: masked, the upper
 * one is a float; shifted, the lower one is. */
enum { PRODUCTS_float = LANES, PRODUCTS_bf16 = 2 * LANES };
static inline Lanes add_products_float(Lanes sum, const float *x, const float *y) {
    return sum + *(const LanesView *)x * *(const LanesView *)y;
}
static inline Lanes add_products_bf16(Lanes sum, const bf16 *x, const bf16 *y) {
    typedef uint32_t Words __attribute__((vector_size(sizeof(Lanes))));
    Words a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    sum += (Lanes)(a << 16) * (Lanes)(b << 16);
    return sum + (Lanes)(a & 0xFFFF0000u) * (Lanes)(b & 0xFFFF0000u);
}
#define PRODUCTS                TYPED(PRODUCTS)
#define add_products(sum, x, y) TYPED(add_products)(sum, x, y)

/* The loops of naive forms use all threads for large inputs, as eager frameworks do, so that a comparison
 * with fused forms is fair. One thread computes each iteration, and sums keep their sequential order, so
 * the bits do not depend on the number of threads.
 *
 *     EACH (ctx, i, count, elements)   i from 0 to count - 1, each with `elements` elements
 *     EACH_ELEMENT (ctx, i, count)     single elements, vectorized */
enum { EACH_LEAST = 1 << 15 }; // elements per parallel region at least, as in PyTorch
#define EACH_PRAGMA(text) _Pragma(#text)
#define EACH(ctx, i, count, elements)                                                                        \
    EACH_PRAGMA(omp parallel for num_threads(cpu_threads(ctx)) schedule(static)                              \
                if ((count) * (elements) >= EACH_LEAST))                                                     \
    for (int64_t i = 0; i < (count); i++)
#define EACH_ELEMENT(ctx, i, count)                                                                          \
    EACH_PRAGMA(omp parallel for simd num_threads(cpu_threads(ctx)) schedule(static)                         \
                if (parallel : (count) >= EACH_LEAST))                                                       \
    for (int64_t i = 0; i < (count); i++)

static inline stored *stored_row(Tensor t, int64_t row) {
    return (stored *)t.data + row * t.stride;
}

/* In double precision these call the library, which is the specification. In fp32 they call vectorizable
 * functions, as the fused forms do, so that a comparison with fused forms is fair. */
#define real_exp(x)  _Generic((x), float : simd_exp, double : exp)(x)
#define real_tanh(x) _Generic((x), float : simd_tanh, double : tanh)(x)
#define real_erfc(x) _Generic((x), float : simd_erfc, double : erfc)(x)
