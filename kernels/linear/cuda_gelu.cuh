/* cuda_gelu: GPT-2's GELU and its slope (linear.h). */
#ifndef KERNELS_LINEAR_CUDA_GELU_CUH
#define KERNELS_LINEAR_CUDA_GELU_CUH

namespace {

constexpr float SQRT_2_OVER_PI = 0.7978845608028654f, CUBIC = 0.044715f;

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

__device__ __forceinline__ float gelu(float z) {
    return z * Sigmoid(z).s;
}

__device__ __forceinline__ float gelu_slope(float z) {
    const Sigmoid sigmoid(z);
    const float two_du = 2.f * SQRT_2_OVER_PI * (1.f + 3.f * CUBIC * z * z);
    return sigmoid.s * (1.f + z * sigmoid.complement * two_du);
}

} // namespace

#endif
