/* partials: the second stage of the two-stage sums over rows (biases, norm weights). Blocks of the first
 * stage leave one row of partial sums each; here the rows are added in a fixed order, so the same input gives
 * the same bits, and no float atomics are needed. */
#pragma once

#include "kernels/op.h"

/* Sums of one width that lie side by side in a row of partials; NULL where there are fewer. */
struct SumTargets {
    float *to[3];
};

/* targets.to[s][c] += sum over p of partials[p, s, c]        for each s that has a target
 * partials (parts, targets, width), dense. */
CHECKED Status partials_add(Ctx *ctx, const float *partials, int64_t parts, int64_t width,
                            SumTargets targets);
