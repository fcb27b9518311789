/* partials: the second stage of the two-stage sums over rows (biases, norm weights). Blocks of the first
 * stage leave one row of partial sums each; here the rows are added in a fixed order, so the same input gives
 * the same bits, and no float atomics are needed. */
#ifndef KERNELS_DEVICE_PARTIALS_CUH
#define KERNELS_DEVICE_PARTIALS_CUH

#include "kernels/op.h"

/* first[c] += sum over p of partials[p, c] for c < first_width; second[c - first_width] likewise for the
 * columns from there to `width`. partials is (parts, width), dense. `second` may be NULL when first_width is
 * width. */
CHECKED Status partials_add(Ctx *ctx, const float *partials, int64_t parts, int64_t width, float *first,
                            int64_t first_width, float *second);

#endif
