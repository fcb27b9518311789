/* compare_run: runs a trainer naive and fused in turns, on the same batches from the same state, and measures
 * both (--compare). */
#ifndef APP_COMPARE_RUN_H
#define APP_COMPARE_RUN_H

#include "app/profiling.h"
#include "app/progress.h"
#include "run/trainer.h"
#include "profile/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMPARE_WARMUP = 3, COMPARE_ROUNDS = 10 }; // rounds of --compare

typedef struct {
    uint32_t fuses;         // of the fused run; the naive one has none
    int64_t warmup, rounds; // rounds is at least 1
    double learning_rate;
    FetchBatch fetch; // must give the same micro-batches for the same index whenever it is called
    void *source;
    Progress *progress;                // its total is 2 * rounds; NULL: none is shown
    const ProfilingOptions *profiling; // NULL: no window of steps is traced after the rounds
    const TraceRun *facts;             // of the traces
    TraceList *traces;                 // (FORM_COUNT) where they go
} CompareOptions;

/* What becomes of a comparison. */
typedef struct {
    const Session *session;
    const Peaks *peaks;
    const size_t *bytes;               // (FORM_COUNT) of compare_run_measure
    const ProfilingOptions *profiling; // with a window "": no profile
    const char *suffix;                // of the profile's files
    const char *folder;                // for compare.json; "": none
    FILE *file;                        // where it is printed, or NULL
} CompareReport;

/* Measures the memory of both: instead of trainer_measure, before trainer_allocate. */
CHECKED Status compare_run_measure(Trainer *trainer, uint32_t fuses, size_t bytes[FORM_COUNT]);

/* Runs the comparison and leaves the trainer's state as it was. Fills `paths` and `differences`; step times
 * come from rounds of their own, with nothing else on. Needs a second copy of the state for its duration. */
CHECKED Status compare_run(Trainer *trainer, const CompareOptions *options, Comparison *comparison);

/* Runs the comparison and reports it, with the profiles of both where a window asks for them. */
CHECKED Status compare_report(Trainer *trainer, const CompareOptions *options, const CompareReport *report);

#ifdef __cplusplus
}
#endif
#endif
