/* real: the types of the CPU's forms. The Makefile compiles every cpu_naive.c three times, with
 * -DSTORED=float, bf16 and double, and every cpu_fused.c with the first two. Tensors hold `stored`, of
 * STORED_DTYPE. Arithmetic, statistics, losses and the parameters' gradients are `real`: float, but double
 * where `stored` is. load() widens; store() rounds to nearest, ties to even; both do nothing where the
 * types are the same. What one room's file lends to others is named by the type too: TYPED(dropout_row) is
 * dropout_row_float or _bf16. */
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

/* A run of results: made in fp32 in `room`, or where they go if that is how they are stored, and then
 * stored. */
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
    int64_t done = simd_narrow(run, count, y, streams);
#pragma omp simd
    for (int64_t i = done; i < count; i++) y[i] = store_bf16(run[i]);
}
#define store_run(run, count, y)  TYPED(store_run)(run, count, y, false)
#define stream_run(run, count, y) TYPED(store_run)(run, count, y, true) // as simd_narrow() says

/* Adds up products of two arrays, PRODUCTS elements at a time, in any order: of two bf16 in a word one is a
 * float where it stands but for the other one's bits, and the other where it is moved to. */
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

/* The loops of the naive forms run on all threads where there is enough to do, as eager frameworks' do: so that
 * what a fused form saves is not this. An iteration is one thread's, and so is every sum, in the order that it
 * has on a single thread: the bits of such a loop do not depend on the number of threads.
 *
 *     EACH (ctx, i, count, elements)   i from 0 to count - 1, with so many elements each
 *     EACH_ELEMENT (ctx, i, count)     the same of single ones, as vector code                             */
enum { EACH_LEAST = 1 << 15 }; // elements that are worth the start of threads: PyTorch's grain, too
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

/* In double precision these are the library's, which is the specification. In fp32 they are what compilers
 * turn into vector code, as the fused forms have: so that what a fused form saves is not this. */
#define real_exp(x)  _Generic((x), float : simd_exp, double : exp)(x)
#define real_tanh(x) _Generic((x), float : simd_tanh, double : tanh)(x)
#define real_erfc(x) _Generic((x), float : simd_erfc, double : erfc)(x)
