/* check: validates the tensors of a contract, for every form. A failure is an ERROR_INTERNAL, because only
 * the model builds contracts. The message names the tensor, its shape and the required shape. Row and
 * column counts are compared, not ranks: (B, T, C) and (B*T, C) are both B*T rows of C. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"

/* The tensor exists, so its shape may be read. */
CHECKED Status check_present(const char *operation, const char *name, Tensor t);

/* `rows` rows of `width` elements, possibly strided. (C) is one row. */
CHECKED Status check_view(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                          int64_t width);

/* The same, with contiguous rows. */
CHECKED Status check_dense(const char *operation, const char *name, Tensor t, Dtype dtype, int64_t rows,
                           int64_t width);

/* A condition on the contract's scalars; `what` describes it for the message. */
CHECKED Status check_that(const char *operation, bool holds, const char *what);
