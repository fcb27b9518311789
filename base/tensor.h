/* tensor: a typed, row-major view of memory owned elsewhere (an arena, a mapped file). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

typedef enum { F32, F64, BF16, I32, U8, E4M3, I8, I4, DTYPE_COUNT } Dtype;

typedef struct {
    int rank;     // 0: no tensor
    int64_t d[4]; // d[rank - 1] is the innermost dimension
} Shape;

typedef struct {
    void *data; // on the running device; never dereferenced while measuring
    Dtype dtype;
    Shape shape;
    int64_t stride; // elements from one row (last axis) to the next; d[rank - 1] when dense
    void *scales;   // (elements / GROUP) bf16 of I8 and I4, in the same memory; else NULL
} Tensor;

size_t dtype_size(Dtype dtype); // bytes; 0 for I4, two of which share a byte
size_t dtype_bytes(Dtype dtype, int64_t count);
const char *dtype_name(Dtype dtype); // "fp32", "fp64", "bf16", "i32", "u8", "e4m3", "int8", "int4"

/* I8 and I4 are matrices of integers by groups (base/groups.h). Their rows are a multiple of GROUP_ROWS, of a
 * multiple of GROUP elements each. */
enum { GROUP = 32, GROUP_ROWS = 8 };
static inline bool dtype_grouped(Dtype dtype) {
    return dtype == I8 || dtype == I4;
}

/* The dtype of statistics, losses and parameter gradients for tensors of this dtype: fp32, or fp64 for
 * fp64. */
static inline Dtype dtype_wide(Dtype dtype) {
    return dtype == F64 ? F64 : F32;
}

static inline Shape shape1(int64_t a) {
    return (Shape){1, {a, 0, 0, 0}};
}
static inline Shape shape2(int64_t a, int64_t b) {
    return (Shape){2, {a, b, 0, 0}};
}
static inline Shape shape3(int64_t a, int64_t b, int64_t c) {
    return (Shape){3, {a, b, c, 0}};
}
static inline Shape shape4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return (Shape){4, {a, b, c, d}};
}

/* Number of elements; 0 for rank 0; -1 if a dimension is negative or the product overflows. */
int64_t shape_count(Shape shape);

/* A dense view of `data`. */
Tensor tensor_view(void *data, Dtype dtype, Shape shape);

/* Columns [first, first + count) of every row: a view with the same stride. */
Tensor tensor_columns(Tensor t, int64_t first, int64_t count);

/* A dense view that starts at element `first` of t's memory. It may extend beyond t. */
Tensor tensor_elements(Tensor t, int64_t first, Shape shape);

/* A view of dense memory with another shape of the same count. */
Tensor tensor_reshape(Tensor t, Shape shape);

static inline bool tensor_empty(Tensor t) {
    return t.shape.rank == 0;
}
static inline int64_t tensor_width(Tensor t) {
    return t.shape.d[t.shape.rank - 1];
}
int64_t tensor_count(Tensor t);
int64_t tensor_rows(Tensor t); // product of all axes but the last
bool tensor_dense(Tensor t);
size_t tensor_bytes(Tensor t); // bytes of the elements and their scales, gaps between rows not counted

__END_DECLS
