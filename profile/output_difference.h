/* output_difference: how far the naive and the fused path's outputs lie apart, operation by operation. */
#pragma once

#include "kernels/op.h"
#include "report/figures.h"

/* An observer (Ctx.observe = output_difference_observe, Ctx.observer = this) that keeps the outputs of a
 * first run in host memory and compares those of a second run with them, call by call. All zero at first. */
typedef struct {
    bool second; // the caller sets it between the runs
    Difference *differences;
    int64_t difference_count, difference_room;
    struct KeptOutput *kept;
    int64_t kept_count, kept_room, next; // next: where the second run is
} OutputDifference;

/* ERROR_INTERNAL where the second run's calls are not the first's. */
CHECKED Status output_difference_observe(Ctx *ctx, const Call *call);
void output_difference_close(OutputDifference *observer);
