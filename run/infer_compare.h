/* infer_compare: measures forward passes, naive and fused in turns, and prints both side by side, as
 * run/compare_run.h does for steps of training. */
#pragma once

#include "run/infer_benchmark.h"

/* Runs passes of this size `warmup` + `repeats` times in each form, and `repeats` times more with every operation
 * timed. Adds a profile of each form to the report, to the fused one the ratio of their times and the differences of
 * their outputs, and prints them to `file`, unless that is NULL. The inference was started to compare. */
CHECKED Status infer_compare(Inference *inference, const Session *session, const BenchmarkSize *size,
                             int64_t warmup, int64_t repeats, Benchmark *report, FILE *file);
