/* compare: operations timed one by one, printed; and those of the naive and the fused path side by side,
 * joined by operation, printed and written. */
#pragma once

#include "kernels/record.h"
#include "base/stats.h"
#include "report/figures.h"
#include "profile/output_difference.h"

#include <stdio.h>

/* Figures of operations that were timed one by one (trace_records.h), with the trace they stand on. */
typedef struct {
    Trace *trace;
    Figures figures;
} TimedOperations;

/* Waits for what the recorder has recorded and folds it. ERROR_INTERNAL where records were dropped; the
 * message tells people to use fewer `option`, as "--repeats". */
CHECKED Status timed_operations_read(Recorder *recorder, const Peaks *peaks, const char *option,
                                     TimedOperations *timed);
void timed_operations_free(TimedOperations *timed);

/* One table: operation, pass, form, ms, share of the total, launches, TFLOP/s, TB/s, share of the limit;
 * below each operation the primitives that were recorded. */
void timed_operations_print(const TimedOperations *timed, FILE *file);

/* One path's measurements. */
typedef struct {
    TimedOperations operations;
    Stats step; // ms of the whole step in the rounds with timing per operation off
    size_t peak_bytes;
} PathTimes;

typedef struct {
    char device[128], library[96], dtype[8], model[128];
    int64_t batch, seq, rounds;
    Peaks peaks;
    PairsRatio pairs;    // of the rounds: the naive whole step's time over the fused one's
    double cores_waited; // cores.h
    PathTimes paths[FORM_COUNT];
    Difference *differences;
    int difference_count;
} Comparison;

void compare_print(const Comparison *comparison, FILE *file);
CHECKED Status compare_write(const Comparison *comparison, const char *path);
void compare_free(Comparison *comparison);
