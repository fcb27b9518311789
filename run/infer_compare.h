/* infer_compare: measures forward passes, naive and fused alternately, and prints both side by side, like
 * run/compare_run.h for training steps. */
#pragma once

#include "run/infer_benchmark.h"

/* Runs passes of this size `warmup` + `repeats` times in each form, and `repeats` times more with every
 * operation timed. Adds a profile of each form to the report, and to the fused one the ratio of their times
 * and the differences of their outputs. Prints both to `file`, unless that is NULL. The inference must have
 * been started with `compare`. */
CHECKED Status infer_compare(Inference *inference, const Session *session, const BenchmarkSize *size,
                             int64_t warmup, int64_t repeats, Benchmark *report, FILE *file);
