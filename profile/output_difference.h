/* output_difference: relative error between the outputs of the naive and the fused path, per operation. */
#pragma once

#include "kernels/op.h"
#include "report/figures.h"

/* An observer (Ctx.observe = output_difference_observe, Ctx.observer = this) that keeps the outputs of a
 * first run in host memory and compares those of a second run with them, call by call. All zero at first. */
typedef struct {
    bool second; // set by the caller between the runs
    Difference *differences;
    int64_t difference_count, difference_room;
    struct KeptOutput *kept;
    int64_t kept_count, kept_room, next; // next: the position of the second run
} OutputDifference;

/* ERROR_INTERNAL if the second run makes other calls than the first. */
CHECKED Status output_difference_observe(Ctx *ctx, const Call *call);
void output_difference_close(OutputDifference *observer);
