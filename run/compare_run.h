/* compare_run: runs a trainer's paths alternately, on the same batches from the same state, and measures each
 * (--compare): naive, fused, and with --fused=1,fp8 also that path. */
#pragma once

#include "run/profiling.h"
#include "run/progress.h"
#include "run/trainer.h"
#include "profile/compare.h"

enum { COMPARE_ROUNDS = 10 }; // rounds for step times, and again for operations

typedef struct {
    const Session *session; // its fuses are those of the last path; the naive path has none
    const Peaks *peaks;
    const size_t *bytes; // (COMPARE_PATHS), from compare_run_measure
    double learning_rate;
    FetchBatch fetch; // must return the same micro-batches for the same index every time
    void *source;
    const ProfilingOptions *profiling; // with a window "": no profile
    const char *suffix;                // suffix of the profile's files
    const char *folder;                // for compare.json; "": none
    Progress *progress;                // its total is 2 * COMPARE_ROUNDS
    FILE *file;                        // where the comparison is printed; may be NULL
} CompareOptions;

/* Measures the memory of each path: replaces trainer_measure, before trainer_allocate. */
CHECKED Status compare_run_measure(Trainer *trainer, uint32_t fuses, size_t bytes[COMPARE_PATHS]);

/* Runs the comparison, reports it, with profiles of the first and the last path if requested, and restores
 * the trainer's state. Step times come from separate rounds without any instrumentation. Needs a second copy
 * of the state while it runs. */
CHECKED Status compare_report(Trainer *trainer, const CompareOptions *options);
