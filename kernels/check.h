/* check: what a room demands of the tensors in a contract, whatever form will run. A failure is an
 * ERROR_INTERNAL, since only the model builds contracts; the message names the tensor, what it is and what it
 * must be. A dimension is compared, never the rank: (B, T, C) and (B*T, C) are both B*T rows of C. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"

/* The tensor exists, so that its shape may be looked at. */
CHECKED Status check_present(const char *operation, const char *name, Tensor t);

/* `rows` rows of `width` elements; the rows of a view may lie apart. (C) is one row. */
CHECKED Status check_view(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                          int64_t width);

/* The same, and the rows lie one behind the other. */
CHECKED Status check_dense(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                           int64_t width);

/* A condition between scalars of the contract; `what` says it in words. */
CHECKED Status check_that(const char *operation, bool holds, const char *what);
