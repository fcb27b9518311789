/* compare_run: runs a trainer naive and fused in turns, on the same batches from the same state, and measures
 * both (--compare). */
#pragma once

#include "run/profiling.h"
#include "run/progress.h"
#include "run/trainer.h"
#include "profile/compare.h"

enum { COMPARE_ROUNDS = 10 }; // of --compare, for step times and again for operations

typedef struct {
    const Session *session; // whose fuses the fused run has; the naive one has none
    const Peaks *peaks;
    const size_t *bytes; // (FORM_COUNT) of compare_run_measure
    double learning_rate;
    FetchBatch fetch; // must give the same micro-batches for the same index whenever it is called
    void *source;
    const ProfilingOptions *profiling; // with a window "": no profile
    const char *suffix;                // of the profile's files
    const char *folder;                // for compare.json; "": none
    Progress *progress;                // its total is 2 * COMPARE_ROUNDS
    FILE *file;                        // where the comparison is printed, or NULL
} CompareOptions;

/* Measures the memory of both: instead of trainer_measure, before trainer_allocate. */
CHECKED Status compare_run_measure(Trainer *trainer, uint32_t fuses, size_t bytes[FORM_COUNT]);

/* Runs the comparison, reports it, with the profiles of both forms where a window asks for them, and leaves
 * the trainer's state as it was. Step times come from rounds of their own, with nothing else on. Needs a
 * second copy of the state for its duration. */
CHECKED Status compare_report(Trainer *trainer, const CompareOptions *options);
