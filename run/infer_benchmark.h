/* infer_benchmark: measures forward passes, one size after another, and reports them. */
#pragma once

#include "profile/compare.h"
#include "run/infer_options.h"
#include "run/inference.h"
#include "run/profiling.h"

/* One size in one form. The time of the pass and those of the operations are measured separately. */
typedef struct {
    const char *label; // "naive" or "fused" with --compare, else ""
    int64_t batch, seq;
    double cores_waited; // see base/cores.h
    Work work;
    PathTimes times; // a step is the whole pass, including logits, until the device is done
    GainSplit split; // for "fused"
} BenchmarkResult;

typedef struct {
    Peaks peaks;
    const char *unit; // unit of rates: "tok/s"
    BenchmarkResult *profiles;
    int64_t count, room;
} Benchmark;

/* Token ids spread over the vocabulary; the same seed gives the same ids. */
void infer_benchmark_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t seed);

typedef struct {
    const int32_t *tokens; // (batch, seq)
    int64_t batch, seq;
} BenchmarkSize;

/* Runs passes of this size --warmup-runs + --repeats times, and --repeats times more with every operation
 * timed; with --compare in each form, naive and fused alternately, in an inference that was started with
 * `compare`. Adds a profile of each form to the report, to the fused one also the ratio of their times and the
 * differences of their outputs, and prints them unless --quiet is given. */
CHECKED Status infer_benchmark_measure(Inference *inference, const Session *session,
                                       const InferOptions *options, const BenchmarkSize *size,
                                       Benchmark *report);

/* Runs passes of this size until the profile is complete, and writes its reports. */
CHECKED Status infer_benchmark_trace(Inference *inference, const BenchmarkSize *size, Profiling *profiling);

/* The largest differences between the outputs of a naive pass and a pass with `fuses`, over the first row:
 * all rows would not fit in host memory. The caller frees them with memory_free. */
CHECKED Status infer_benchmark_differences(Inference *inference, const BenchmarkSize *size, uint32_t fuses,
                                           Difference **differences, int *count);

/* One line per profile: time, spread, tokens per second, TFLOP/s, share of the limit. */
void infer_benchmark_print(const Benchmark *report, FILE *file);

/* The report as JSON, with `device`, `library`, `dtype` and `model`. */
CHECKED Status infer_benchmark_write(const Benchmark *report, const Device *device, const char *dtype,
                                     const char *model, const char *path);
void infer_benchmark_free(Benchmark *report);
