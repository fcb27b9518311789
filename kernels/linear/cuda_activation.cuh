/* cuda_activation: the activations and their derivatives (linear.h), one type each, as template arguments of
 * kernels. */
#pragma once

#include "kernels/linear/linear.h"

namespace {

constexpr float SQRT_2_OVER_PI = 0.7978845608028654f, CUBIC = 0.044715f;
constexpr float SQRT_1_OVER_2_PI = 0.3989422804014327f;

/* gelu(z) = z/2 (1 + tanh(u)) = z s with s = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3). */
struct Sigmoid {
    float s, complement; // complement = 1 - s, without cancellation

    __device__ __forceinline__ explicit Sigmoid(float z) {
        const float u = SQRT_2_OVER_PI * (z + CUBIC * z * z * z);
        const float e = __expf(fminf(-2.f * u, 80.f)); // so that e s stays finite
        s = __fdividef(1.f, 1.f + e);
        complement = e * s;
    }
};

template <Activation A>
__device__ __forceinline__ float activated(float z) {
    static_assert(A >= 0 && A < ACTIVATION_COUNT, "a known activation");
    if constexpr (A == ACTIVATION_NONE) return z;
    if constexpr (A == ACTIVATION_GELU_TANH) return z * Sigmoid(z).s;
    if constexpr (A == ACTIVATION_GELU) return z * normcdff(z);
    if constexpr (A == ACTIVATION_RELU) return fmaxf(z, 0.f);
    if constexpr (A == ACTIVATION_TANH) return tanhf(z);
}

/* The activations from A on, for one that a launch passes. Of a switch the compiler makes a table of jumps,
 * whose load takes longer than comparisons, which `asm` keeps apart. */
template <int A>
__device__ __forceinline__ float activated_from(int activation, float z) {
    if constexpr (A == ACTIVATION_SWIGLU) {
        return z; // SWIGLU is not elementwise
    } else {
        if (activation == A) return activated<Activation(A)>(z);
        asm("" : "+r"(activation));
        return activated_from<A + 1>(activation, z);
    }
}
template <int A>
__device__ __noinline__ float activated_far(int activation, float z) {
    return activated_from<A>(activation, z);
}
/* The rare ones are a function of their own, so that a kernel without an activation need not jump over them. */
__device__ __forceinline__ float activated_by(int activation, float z) {
    if (activation == ACTIVATION_NONE) return z;
    if (activation == ACTIVATION_GELU_TANH) return activated<ACTIVATION_GELU_TANH>(z);
    return activated_far<ACTIVATION_GELU>(activation, z);
}

template <Activation A>
__device__ __forceinline__ float slope_of(float z) {
    static_assert(A >= 0 && A < ACTIVATION_COUNT, "a known activation");
    if constexpr (A == ACTIVATION_NONE) return 1.f;
    if constexpr (A == ACTIVATION_GELU_TANH) {
        const Sigmoid sigmoid(z);
        const float two_du = 2.f * SQRT_2_OVER_PI * (1.f + 3.f * CUBIC * z * z);
        return sigmoid.s * (1.f + z * sigmoid.complement * two_du);
    }
    if constexpr (A == ACTIVATION_GELU) return normcdff(z) + z * SQRT_1_OVER_2_PI * __expf(-0.5f * z * z);
    if constexpr (A == ACTIVATION_RELU) return z > 0.f ? 1.f : 0.f;
    if constexpr (A == ACTIVATION_TANH) {
        const float t = tanhf(z);
        return 1.f - t * t;
    }
}

/* silu(z) = z s with s = 1 / (1 + exp(-z)), and its slope s (1 + z (1 - s)). */
__device__ __forceinline__ float silu(float z) {
    return __fdividef(z, 1.f + __expf(fminf(-z, 80.f))); // a divisor beyond 2^126 would give 0
}

__device__ __forceinline__ float silu_slope(float z) {
    const float e = __expf(fminf(-z, 80.f)), s = __fdividef(1.f, 1.f + e);
    return s * (1.f + z * (e * s));
}

} // namespace

/* Runs the statements with the constant A = activation, which linear.c has checked; does nothing for a gated
 * one, which is not elementwise. */
#define DISPATCH_ACTIVATION(activation, A, ...)                                                              \
    do {                                                                                                     \
        switch (activation) {                                                                                \
            ACTIVATION_CASE(ACTIVATION_NONE, A, __VA_ARGS__)                                                 \
            ACTIVATION_CASE(ACTIVATION_GELU_TANH, A, __VA_ARGS__)                                            \
            ACTIVATION_CASE(ACTIVATION_GELU, A, __VA_ARGS__)                                                 \
            ACTIVATION_CASE(ACTIVATION_RELU, A, __VA_ARGS__)                                                 \
            ACTIVATION_CASE(ACTIVATION_TANH, A, __VA_ARGS__)                                                 \
        case ACTIVATION_SWIGLU: break;                                                                       \
        }                                                                                                    \
    } while (0)
#define ACTIVATION_CASE(value, A, ...)                                                                       \
    case value: {                                                                                            \
        constexpr Activation A = value;                                                                      \
        __VA_ARGS__;                                                                                         \
    } break;
