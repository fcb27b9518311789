/* summary: records folded into one row for each (place, operation, pass): time per step, launches, work.
 * Layers are added up. Reads records only. */
#ifndef PROFILE_SUMMARY_H
#define PROFILE_SUMMARY_H

#include "profile/peaks.h"
#include "kernels/record.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *call;
    const char *primitive; // NULL in rows of operations
    Operation operation;
    Pass pass;
    Form form;
    double ms, ms_low, ms_high; // per step: median, smallest, largest over the steps
    double calls, launches;     // per step
    Work work;                  // per step
} SummaryRow;

typedef struct {
    SummaryRow *rows; // in the order in which they first ran
    int count;
    int64_t steps;
} Summary;

/* Folds the records of `steps` steps, numbered first_step and up. Time that a primitive spent under another
 * pass than its operation's is moved to that pass. With `primitives`, rows of primitives follow their
 * operation's row. */
CHECKED Status summary_make(const Record *records, int64_t count, int64_t first_step, int64_t steps,
                            bool primitives, Summary *summary);
void summary_free(Summary *summary);

/* Median of per-step sums over the rows of operations of one pass; PASS_COUNT for all. */
double summary_pass_ms(const Summary *summary, Pass pass);

/* The share of the machine's limit: least possible time of the work over ms; the binding limit's letter, 'm'
 * matrix rate or 'b' bandwidth. 0 where the peaks are unknown. */
double work_share(Work work, double ms, const Peaks *peaks, char *limit);

/* One table: operation, pass, form, ms, share of the total, launches, TFLOP/s, TB/s, share of the limit. */
void summary_print(const Summary *summary, const Peaks *peaks, FILE *file);

double median(double *values, int64_t count); // sorts `values`; 0 of none

#ifdef __cplusplus
}
#endif
#endif
