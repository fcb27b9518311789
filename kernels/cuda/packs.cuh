/* packs: tensors in kernels: types of dtypes, vectorized access to neighbouring elements, and launches of
 * kernels that process packs. */
#pragma once

#include "kernels/cuda/launch.cuh"

#include <cuda_bf16.h>
#include <initializer_list>

/* ---- dtypes ---- */

typedef __nv_bfloat16 bf16;

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
    static constexpr Dtype value = F32;
};
template <>
struct DtypeOf<bf16> {
    static constexpr Dtype value = BF16;
};

/* Executes the statements with T as the type of `dtype`:
 *     DISPATCH_FLOAT(x.dtype, T, TRY(scale<T>(ctx, x)));
 * TRY inside returns from the enclosing function. A dtype other than F32 and BF16 is an error. */
#define DISPATCH_FLOAT(dtype, T, ...)                                                                        \
    do {                                                                                                     \
        const Dtype dispatched_ = (dtype);                                                                   \
        if (dispatched_ == BF16) {                                                                           \
            using T = bf16;                                                                                  \
            __VA_ARGS__;                                                                                     \
        } else if (dispatched_ == F32) {                                                                     \
            using T = float;                                                                                 \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            return fail(ERROR_INTERNAL, "no kernel for %s", dtype_name(dispatched_));                        \
        }                                                                                                    \
    } while (0)

template <class T>
static inline T *data_of(const Tensor &t) {
    return static_cast<T *>(t.data); // NULL if the tensor is empty
}

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(bf16 x) {
    return __bfloat162float(x);
}

template <class T>
__device__ inline T from_float(float x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return x;
    } else {
        return __float2bfloat16_rn(x);
    }
}

/* ---- vector access ---- */

/* N neighbours of one row, moved by accesses of up to 16 bytes. The address must be aligned to the smaller of
 * 16 bytes and the whole. N = 1 is the fallback for odd sizes and addresses. */
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T e[N];
};

template <class T>
constexpr int VECTOR = 16 / (int)sizeof(T); // elements in 16 bytes

template <class T>
using Vector = Pack<T, VECTOR<T>>;

template <int Bytes>
struct Word;
template <>
struct Word<16> {
    typedef uint4 type;
};
template <>
struct Word<8> {
    typedef uint2 type;
};
template <>
struct Word<4> {
    typedef unsigned type;
};
template <>
struct Word<2> {
    typedef unsigned short type;
};

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T *from) {
    typedef typename Word < sizeof(T) * N<16 ? sizeof(T) * N : 16>::type word;
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(pack) / sizeof(word)); i++) {
        reinterpret_cast<word *>(&pack)[i] = reinterpret_cast<const word *>(from)[i];
    }
    return pack;
}

template <int N, class T>
__device__ inline void store_pack(T *to, const Pack<T, N> &pack) {
    typedef typename Word < sizeof(T) * N<16 ? sizeof(T) * N : 16>::type word;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(pack) / sizeof(word)); i++) {
        reinterpret_cast<word *>(to)[i] = reinterpret_cast<const word *>(&pack)[i];
    }
}

/* The same, converted to and from fp32 for arithmetic. */
template <int N, class T>
__device__ inline void load_floats(const T *from, float (&x)[N]) {
    Pack<T, N> pack = load_pack<N>(from);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = to_float(pack.e[i]);
}

template <int N, class T>
__device__ inline void store_floats(T *to, const float (&x)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.e[i] = from_float<T>(x[i]);
    store_pack<N>(to, pack);
}

/* N neighbours of a row as fp32, zero from `count` on, which may be negative; `vector`: rows can be walked in
 * packs of N. */
template <int N, class T>
__device__ inline void load_columns(const T *from, int count, bool vector, float (&x)[N]) {
    if (count >= N && vector) {
        load_floats<N>(from, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = i < count ? to_float(from[i]) : 0.0f;
}

/* Whether rows can be walked in packs of `n` elements: every extent (widths, strides) is a multiple of n and
 * every pointer is 16-byte aligned (NULL is). */
static inline bool walks_in_packs(int n, std::initializer_list<int64_t> extents,
                                  std::initializer_list<const void *> pointers) {
    for (int64_t extent : extents) {
        if (extent % n != 0) return false;
    }
    for (const void *pointer : pointers) {
        if ((uintptr_t)pointer % 16 != 0) return false;
    }
    return true;
}

/* Runs the statements with N = VECTOR<T> where `packed`, else with N = 1. */
#define DISPATCH_PACK(packed, T, N, ...)                                                                     \
    do {                                                                                                     \
        if (packed) {                                                                                        \
            constexpr int N = VECTOR<T>;                                                                     \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            constexpr int N = 1;                                                                             \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

/* Launches kernel<T, N>(...), with N = VECTOR<T> where `packed`, else 1. Yields a Status. */
#define LAUNCH_PACKED(ctx, kernel, T, packed, grid, block, ...)                                              \
    ((packed) ? LAUNCH(ctx, (kernel<T, VECTOR<T>>), grid, block, 0, __VA_ARGS__)                             \
              : LAUNCH(ctx, (kernel<T, 1>), grid, block, 0, __VA_ARGS__))

/* The same for a kernel that visits `count` elements by thread_index() and thread_count(). */
#define LAUNCH_ELEMENTS(ctx, kernel, T, packed, count, ...)                                                  \
    LAUNCH_PACKED(ctx, kernel, T, packed,                                                                    \
                  grid_stride_blocks(ctx, divide_up(count, (packed) ? VECTOR<T> : 1), 256), 256,             \
                  __VA_ARGS__)

/* The same for a kernel with a warp per row: row = thread_index() / 32, += thread_count() / 32. */
#define LAUNCH_ROWS(ctx, kernel, T, packed, rows, ...)                                                       \
    LAUNCH_PACKED(ctx, kernel, T, packed, grid_stride_blocks(ctx, (rows)*32, 256), 256, __VA_ARGS__)
