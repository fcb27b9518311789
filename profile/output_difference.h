/* output_difference: relative error between the outputs of the naive and the fused path, per operation. */
#pragma once

#include "kernels/op.h"
#include "report/figures.h"

/* An observer (Ctx.observe = output_difference_observe, Ctx.observer = this) that keeps the outputs of a
 * first run in host memory and compares those of a second run with them, call by call and name by name. An
 * output that only one of the runs writes is not compared. All zero at first. */
typedef struct {
    bool second; // set by the caller between the runs
    Difference *differences;
    int64_t difference_count, difference_room;
    struct KeptCall *kept;
    int64_t kept_count, kept_room, next; // next: position in the second run
} OutputDifference;

/* ERROR_INTERNAL if the second run does not make the calls of the first in their order. It may make
 * additional calls between them, such as the casts of --fused=fp8, if the first run never makes these. */
CHECKED Status output_difference_observe(Ctx *ctx, const Call *call);
void output_difference_close(OutputDifference *observer);
