/* compare: prints operations that were timed one by one; prints and writes the operations of the naive, the
 * fused and, if requested, the fp8 path side by side. */
#pragma once

#include "kernels/record.h"
#include "base/json_writer.h"
#include "base/stats.h"
#include "report/figures.h"
#include "profile/output_difference.h"

#include <stdio.h>

/* Figures of operations that were timed one by one (trace_records.h), with the trace that they refer to. */
typedef struct {
    Trace *trace;
    Figures figures;
} TimedOperations;

/* Waits for the recorder's work and folds its records. ERROR_INTERNAL if records were dropped; the message
 * recommends a smaller `option`, such as "--repeats". */
CHECKED Status timed_operations_read(Recorder *recorder, const Peaks *peaks, const char *option,
                                     TimedOperations *timed);

/* One table: operation, pass, form, ms, share of the total, launches, TFLOP/s, TB/s, share of the limit;
 * below each operation its recorded primitives. */
void timed_operations_print(const TimedOperations *timed, FILE *file);

/* One path's measurements. */
typedef struct {
    TimedOperations operations;
    Stats step;              // ms of the whole step in rounds without timing per operation
    size_t peak_bytes;       // 0: not known
    MedianInterval pairs;    // per round: the previous path's time over this one's; not for the first path
    Difference *differences; // differences of its outputs from the naive path's; owned; NULL for the first
                             // path
    int difference_count;
} PathTimes;

void path_times_free(PathTimes *path);

/* The fused path's ratio on a CPU by its causes, per round. The forms' ratio is the one with OpenBLAS's products
 * in both paths; `products` that of OpenBLAS's products to the fused path's. The forms' ratio is in turn the
 * one on one thread, times what more threads multiply it by. All zero: not separated. */
typedef struct {
    MedianInterval forms, products;
    MedianInterval one_thread, threads;
} GainSplit;

void gain_split_print(const GainSplit *split, FILE *file);
void gain_split_write(const GainSplit *split, JsonWriter *writer);

enum { COMPARE_NAIVE, COMPARE_FUSED, COMPARE_FP8, COMPARE_PATHS };

typedef struct {
    const char *what; // "step" or "pass"
    const char *device, *library, *dtype, *model;
    int64_t batch, seq, rounds;
    Peaks peaks;
    GainSplit split;
    double cores_waited; // see base/cores.h
    int path_count;      // 2, or 3 with COMPARE_FP8
    PathTimes paths[COMPARE_PATHS];
} Comparison;

/* Prints a table for each path but the first, next to the previous path. */
void compare_print(const Comparison *comparison, FILE *file);
CHECKED Status compare_write(const Comparison *comparison, const char *path);
void compare_free(Comparison *comparison);
