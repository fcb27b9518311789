#include "kernels/check.h"

#include <inttypes.h>

Status check_present(const char *operation, const char *name, Tensor t) {
    return tensor_empty(t) ? fail(ERROR_INTERNAL, "%s: tensor %s is missing", operation, name) : OK;
}

Status check_view(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                  int64_t width) {
    TRY(check_present(operation, name, t));
    if (t.dtype != dtype)
        return fail(ERROR_INTERNAL, "%s: tensor %s is %s, but must be %s", operation, name,
                    dtype_name(t.dtype), dtype_name(dtype));
    if (tensor_rows(t) != rows || tensor_width(t) != width)
        return fail(ERROR_INTERNAL,
                    "%s: tensor %s has %" PRId64 " rows of %" PRId64 ", but must have %" PRId64
                    " rows of %" PRId64,
                    operation, name, tensor_rows(t), tensor_width(t), rows, width);
    if (t.stride < width && rows > 1)
        return fail(ERROR_INTERNAL,
                    "%s: the rows of tensor %s overlap: %" PRId64 " elements, but %" PRId64 " apart",
                    operation, name, width, t.stride);
    return OK;
}

Status check_dense(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                   int64_t width) {
    TRY(check_view(operation, name, t, dtype, rows, width));
    if (!tensor_dense(t))
        return fail(ERROR_INTERNAL,
                    "%s: tensor %s must be dense, but its rows of %" PRId64 " lie %" PRId64 " apart",
                    operation, name, width, t.stride);
    return OK;
}

Status check_that(const char *operation, bool holds, const char *what) {
    return holds ? OK : fail(ERROR_INTERNAL, "%s: the contract requires that %s", operation, what);
}
