#include "base/tensor.h"

#include "base/checked.h"

#include <assert.h>

size_t dtype_size(Dtype dtype) {
    static const size_t sizes[DTYPE_COUNT] = {
        [F32] = 4, [F64] = 8, [BF16] = 2, [I32] = 4, [U8] = 1, [E4M3] = 1, [I8] = 1};
    return sizes[dtype];
}

size_t dtype_bytes(Dtype dtype, int64_t count) {
    return dtype == I4 ? (size_t)count / 2 : (size_t)count * dtype_size(dtype);
}

const char *dtype_name(Dtype dtype) {
    static const char *const names[DTYPE_COUNT] = {
        [F32] = "fp32", [F64] = "fp64",  [BF16] = "bf16", [I32] = "i32",
        [U8] = "u8",    [E4M3] = "e4m3", [I8] = "int8",   [I4] = "int4"};
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
    return (Tensor){data, dtype, shape, shape.rank ? shape.d[shape.rank - 1] : 0, NULL};
}

/* The address as a number; while measuring, data is an offset from NULL. */
static void *element(Tensor t, int64_t i) {
    return (void *)((uintptr_t)t.data + dtype_bytes(t.dtype, i));
}

Tensor tensor_elements(Tensor t, int64_t first, Shape shape) {
    Tensor view = tensor_view(element(t, first), t.dtype, shape);
    if (dtype_grouped(t.dtype))
        view.scales = (void *)((uintptr_t)t.scales + dtype_bytes(BF16, first / GROUP));
    return view;
}

Tensor tensor_columns(Tensor t, int64_t first, int64_t count) {
    assert(first >= 0 && count >= 0 && first + count <= tensor_width(t));
    t.data = element(t, first);
    t.shape.d[t.shape.rank - 1] = count;
    return t;
}

Tensor tensor_reshape(Tensor t, Shape shape) {
    assert(tensor_dense(t) && shape_count(shape) == tensor_count(t));
    return tensor_elements(t, 0, shape);
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
    const int64_t count = tensor_count(t);
    return dtype_bytes(t.dtype, count) + (t.scales ? dtype_bytes(BF16, count / GROUP) : 0);
}
