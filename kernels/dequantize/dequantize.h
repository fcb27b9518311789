/* dequantize: the values of integers by groups (base/groups.h).
 *
 *     y[i] = scale[i / GROUP] * code[i]
 *
 * Inference only. Products whose form has no kernel for groups read y instead. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Tensor x; // (..., C) I8 or I4
    Tensor y; // (..., C) a float dtype, written
} Dequantize;

CHECKED Status dequantize_forward(Ctx *ctx, const Dequantize *d);

/* x's values in `dtype`: x itself if it is not grouped, else a tensor from scratch. */
CHECKED Status dequantize_values(Ctx *ctx, Tensor x, Dtype dtype, Tensor *values);

/* The rows of a matrix by groups that hold `count` elements from `first` on, in host memory: on the CPU the
 * matrix itself, on a GPU a copy of whole tiles. host_groups_close writes it back if it is `changed`. */
typedef struct {
    Tensor matrix;
    int64_t first;        // index in `matrix` of the element `first`
    Tensor codes, scales; // on the GPU; empty on the CPU
} HostGroups;

CHECKED Status host_groups_open(Ctx *ctx, Tensor matrix, int64_t first, int64_t count, HostGroups *host);
CHECKED Status host_groups_close(Ctx *ctx, HostGroups *host, bool changed);

__END_DECLS
