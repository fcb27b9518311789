/* output_difference: how far the naive and the fused path's outputs lie apart, operation by operation. */
#pragma once

#include "kernels/op.h"

/* The largest relative difference between the paths' outputs of one operation and pass: ||a - b|| / ||a||. */
typedef struct {
    const char *call;
    Operation operation;
    Pass pass;
    double difference;
} Difference;

/* That of this identity, by the text of `call`; NULL: none. */
const Difference *difference_find(const Difference *differences, int64_t count, const char *call,
                                  Operation operation, Pass pass);

/* An observer (Ctx.observe = output_difference_observe, Ctx.observer = this) that keeps the outputs of a
 * first run in host memory and compares those of a second run with them, call by call. */
typedef struct OutputDifference OutputDifference;
OutputDifference *output_difference_open(void);
void output_difference_close(OutputDifference *observer);
void output_difference_second_run(OutputDifference *observer);
/* ERROR_INTERNAL where the second run's calls are not the first's. */
CHECKED Status output_difference_observe(Ctx *ctx, const Call *call);
/* Hands the differences over; to be freed with memory_free. */
void output_difference_take(OutputDifference *observer, Difference **differences, int *count);
