/* cuda_rows: a linear layer of a few rows, as in decoding: bound by reading the weights once. */
#pragma once

#include "kernels/linear/linear.h"

/* Whether linear_rows supports this layer: up to 4 rows, whole 16-byte vectors. */
bool linear_rows_suit(const LinearForward *l);
CHECKED Status linear_rows(Ctx *ctx, const LinearForward *l);
