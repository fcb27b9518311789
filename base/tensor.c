#include "base/tensor.h"

#include "base/checked.h"

#include <assert.h>

size_t dtype_size(Dtype dtype) {
    static const size_t sizes[DTYPE_COUNT] = {
        [F32] = 4, [F64] = 8, [BF16] = 2, [I32] = 4, [U8] = 1, [E4M3] = 1};
    return sizes[dtype];
}

const char *dtype_name(Dtype dtype) {
    static const char *const names[DTYPE_COUNT] = {
        [F32] = "fp32", [F64] = "fp64", [BF16] = "bf16", [I32] = "i32", [U8] = "u8", [E4M3] = "e4m3"};
    return names[dtype];
}

int64_t shape_count(Shape shape) {
    if (shape.rank == 0) return 0;
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if (shape.d[i] < 0 || checked_multiply(count, shape.d[i], &count)) return -1;
    return count;
}

Tensor tensor_view(void *data, Dtype dtype, Shape shape) {
    return (Tensor){data, dtype, shape, shape.rank ? shape.d[shape.rank - 1] : 0};
}

/* The address as a number; while measuring, data is an offset from NULL. */
static void *element(Tensor t, int64_t i) {
    return (void *)((uintptr_t)t.data + (size_t)i * dtype_size(t.dtype));
}

Tensor tensor_elements(Tensor t, int64_t first, Shape shape) {
    return tensor_view(element(t, first), t.dtype, shape);
}

Tensor tensor_columns(Tensor t, int64_t first, int64_t count) {
    assert(first >= 0 && count >= 0 && first + count <= tensor_width(t));
    t.data = element(t, first);
    t.shape.d[t.shape.rank - 1] = count;
    return t;
}

Tensor tensor_reshape(Tensor t, Shape shape) {
    assert(tensor_dense(t) && shape_count(shape) == tensor_count(t));
    return tensor_view(t.data, t.dtype, shape);
}

int64_t tensor_count(Tensor t) {
    return shape_count(t.shape);
}

int64_t tensor_rows(Tensor t) {
    int64_t rows = t.shape.rank ? 1 : 0;
    for (int i = 0; i + 1 < t.shape.rank; i++) rows *= t.shape.d[i];
    return rows;
}

bool tensor_dense(Tensor t) {
    return t.shape.rank == 0 || t.stride == tensor_width(t);
}

size_t tensor_bytes(Tensor t) {
    return (size_t)tensor_count(t) * dtype_size(t.dtype);
}
