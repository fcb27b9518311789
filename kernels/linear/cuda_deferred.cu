#include "kernels/linear/cuda_fused.cuh"

#include "kernels/cast/cuda_tile.cuh"
#include "kernels/linear/cuda_activation.cuh"

namespace {

typedef float Values[COLUMNS];

__device__ __forceinline__ Words words_at(const bf16 *from, int64_t row, int64_t stride, int64_t column) {
    return load_words(from + row * stride + column);
}

__device__ __forceinline__ void as_bf16(Values &x) {
    unpack<bf16>(packed<bf16>(x), x);
}

/* activation(pre) */
template <Activation A>
struct Activated {
    static constexpr int PARTS = 1;
    typedef Words Raw;
    const bf16 *pre;
    int64_t width;

    __device__ __forceinline__ Raw read(int64_t row, int64_t column) const {
        return words_at(pre, row, width, column);
    }
    __device__ __forceinline__ void values(int, const Raw &raw, Values &x) const {
        unpack<bf16>(raw, x);
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[e] = activated<A>(x[e]);
        as_bf16(x);
    }
};

/* silu(gate) * up, of pre (rows, 2 * width) */
struct Gated {
    static constexpr int PARTS = 1;
    struct Raw {
        Words gate, up;
    };
    const bf16 *pre;
    int64_t width;

    __device__ __forceinline__ Raw read(int64_t row, int64_t column) const {
        return {words_at(pre, row, 2 * width, column), words_at(pre, row, 2 * width, width + column)};
    }
    __device__ __forceinline__ void values(int, const Raw &raw, Values &x) const {
        Values up;
        unpack<bf16>(raw.gate, x);
        unpack<bf16>(raw.up, up);
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[e] = silu(x[e]) * up[e];
        as_bf16(x);
    }
};

/* dy * activation'(pre) */
template <Activation A>
struct Slope {
    static constexpr int PARTS = 1;
    struct Raw {
        Words dy, pre;
    };
    const bf16 *dy, *pre;
    int64_t width;

    __device__ __forceinline__ Raw read(int64_t row, int64_t column) const {
        return {words_at(dy, row, width, column), words_at(pre, row, width, column)};
    }
    __device__ __forceinline__ void values(int, const Raw &raw, Values &x) const {
        Values z;
        unpack<bf16>(raw.dy, x);
        unpack<bf16>(raw.pre, z);
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[e] *= slope_of<A>(z[e]);
        as_bf16(x);
    }
};

/* dgate = dy * up * silu'(gate) in the first part, dup = dy * silu(gate) in the second */
struct GatedSlope {
    static constexpr int PARTS = 2;
    struct Raw {
        Words dy, gate, up;
    };
    const bf16 *dy, *pre;
    int64_t width; // width of dy

    __device__ __forceinline__ Raw read(int64_t row, int64_t column) const {
        return {words_at(dy, row, width, column), words_at(pre, row, 2 * width, column),
                words_at(pre, row, 2 * width, width + column)};
    }
    __device__ __forceinline__ void values(int part, const Raw &raw, Values &x) const {
        Values z, up;
        unpack<bf16>(raw.dy, x);
        unpack<bf16>(raw.gate, z);
        unpack<bf16>(raw.up, up);
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[e] *= part == 0 ? up[e] * silu_slope(z[e]) : silu(z[e]);
        as_bf16(x);
    }
};

} // namespace

Status deferred_input(Ctx *ctx, const LinearForward *l) {
    const Activation activation = l->input->activation;
    const bf16 *pre = data_of<bf16>(l->input->pre);
    const int64_t width = tensor_width(l->x);
    const Cast *c = &l->x8;
    const Arithmetic arithmetic = activation_arithmetic(activation);
    const char *name = activation_name(activation);
    if (activation_gated(activation))
        return cast_of(ctx, name, CATEGORY_ACTIVATION, arithmetic, Gated{pre, width}, c);
    DISPATCH_ACTIVATION(
        activation, A,
        return cast_of(ctx, name, CATEGORY_ACTIVATION, arithmetic, Activated<A>{pre, width}, c));
    return OK;
}

Status deferred_gradient(Ctx *ctx, const LinearBackward *l) {
    const Activation activation = l->forward->activation;
    const bf16 *dy = data_of<bf16>(l->dy), *pre = data_of<bf16>(l->forward->pre);
    const int64_t width = tensor_width(l->dy);
    const Cast *c = &l->dy8;
    const Arithmetic arithmetic = activation_arithmetic(activation);
    const char *name = activation_gradient_name(activation);
    if (activation_gated(activation))
        return cast_of(ctx, name, CATEGORY_ACTIVATION, arithmetic, GatedSlope{dy, pre, width}, c);
    DISPATCH_ACTIVATION(
        activation, A,
        return cast_of(ctx, name, CATEGORY_ACTIVATION, arithmetic, Slope<A>{dy, pre, width}, c));
    return OK;
}
