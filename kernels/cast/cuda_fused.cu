/* cast in one pass, or two if the largest magnitude must be known first. */
#include "kernels/cast/cuda_tile.cuh"

namespace {

/* Reads x directly from memory. */
template <class T>
struct Stored {
    static constexpr int PARTS = 1;
    typedef Pack<T, COLUMNS> Raw;
    const T *x;
    int64_t width;

    __device__ __forceinline__ Raw read(int64_t row, int64_t column) const {
        return load_pack<COLUMNS>(x + row * width + column);
    }
    __device__ __forceinline__ void values(int, const Raw &raw, float (&x)[COLUMNS]) const {
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[e] = to_float(raw.e[e]);
    }
};

} // namespace

/* Sizes that the tiles do not support, and rounded values, use the naive form. */
template <class T>
static Status cast_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const Cast *c = static_cast<const Cast *>(contract);
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x);
    if (!tensor_empty(c->rounded) || rows % 16 != 0 || width % 16 != 0)
        return slot_function(BACKEND_CUDA, c->x.dtype, OP_CAST, PASS_FORWARD, FORM_NAIVE)(ctx, contract);
    return cast_of(ctx, "cast, transpose", CATEGORY_ELEMENTWISE, ARITHMETIC_PLAIN,
                   Stored<T>{data_of<T>(c->x), width}, c);
}
SLOT(CAST, FORWARD, CUDA, FUSED, F32, cast_forward_cuda_fused<float>);
SLOT(CAST, FORWARD, CUDA, FUSED, BF16, cast_forward_cuda_fused<bf16>);
