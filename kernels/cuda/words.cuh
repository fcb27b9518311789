/* words: 16 bytes of a row as stored in memory. A kernel keeps words in registers and unpacks them where
 * it computes. Two bf16 then share a register, which the compiler does not do for arrays of bf16. */
#pragma once

#include "kernels/cuda/packs.cuh"

struct alignas(16) Words {
    uint32_t w[4];
};

template <typename T>
__device__ __forceinline__ Words load_words(const T *from) {
    const uint4 v = *reinterpret_cast<const uint4 *>(from);
    return {{v.x, v.y, v.z, v.w}};
}

template <typename T>
__device__ __forceinline__ void store_words(T *to, const Words &words) {
    *reinterpret_cast<uint4 *>(to) = make_uint4(words.w[0], words.w[1], words.w[2], words.w[3]);
}

template <typename T>
__device__ __forceinline__ void unpack(const Words &words, float (&x)[VECTOR<T>]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (sizeof(T) == sizeof(float)) {
            x[i] = __uint_as_float(words.w[i]);
        } else { // a bf16 is the upper half of a float
            x[2 * i] = __uint_as_float(words.w[i] << 16);
            x[2 * i + 1] = __uint_as_float(words.w[i] & 0xffff0000u);
        }
    }
}

template <typename T>
__device__ __forceinline__ Words packed(const float (&x)[VECTOR<T>]) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (sizeof(T) == sizeof(float)) {
            words.w[i] = __float_as_uint(x[i]);
        } else {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            words.w[i] = *reinterpret_cast<const uint32_t *>(&pair);
        }
    }
    return words;
}

/* The same for N elements: 16 bytes, or one element as a float if width or addresses are not aligned. */
template <typename T, int N>
__device__ __forceinline__ Words load_words_of(const T *from) {
    static_assert(N == VECTOR<T> || N == 1, "whole words or one element");
    if constexpr (N == VECTOR<T>) return load_words(from);
    return {{__float_as_uint(to_float(*from))}};
}

template <typename T, int N>
__device__ __forceinline__ void unpack_of(const Words &words, float (&x)[N]) {
    if constexpr (N == VECTOR<T>)
        unpack<T>(words, x);
    else
        x[0] = __uint_as_float(words.w[0]);
}

/* Hides the value from the compiler, so that it unpacks the words again instead of keeping each derived
 * float in a register across a reduction. */
__device__ __forceinline__ void forget(Words &words) {
    asm volatile("" : "+r"(words.w[0]), "+r"(words.w[1]), "+r"(words.w[2]), "+r"(words.w[3]));
}
