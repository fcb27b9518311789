/* partials: the second stage of two-stage sums over rows (biases, norm weights). In the first stage, each
 * block writes one row of partial sums; this stage adds the rows in a fixed order. The result is
 * reproducible and needs no float atomics. */
#pragma once

#include "kernels/op.h"

/* Sums of one width stored side by side in a row of partials; unused ones are NULL. */
struct SumTargets {
    float *to[3];
};

/* targets.to[s][c] += sum over p of partials[p, s, c]        for each s that has a target
 * partials (parts, targets, width), dense. */
CHECKED Status partials_add(Ctx *ctx, const float *partials, int64_t parts, int64_t width,
                            SumTargets targets);
