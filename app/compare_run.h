/* paths: runs the naive and the fused path of a trainer in alternation, on the same batches from the same
 * state, and measures both (--compare). */
#ifndef APP_COMPARE_RUN_H
#define APP_COMPARE_RUN_H

#include "app/profiling.h"
#include "run/trainer.h"
#include "profile/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called after each finished round, for a progress bar. */
typedef void (*PathsProgress)(void *context, int64_t round, int64_t rounds);

typedef struct {
    uint32_t fuses[FORM_COUNT]; // of the two paths: usually none, and those of --fused
    int64_t warmup, rounds;     // rounds is at least 1
    double learning_rate;
    FetchBatch fetch; // must give the same micro-batches for the same index whenever it is called
    void *source;
    PathsProgress progress; // may be NULL
    void *progress_context;
    const ProfilingOptions *profiling; // NULL: no window of steps is traced after the rounds
    const TraceRun *facts;             // of the traces
    TraceList *traces;                 // (FORM_COUNT) where they go
} PathsOptions;

/* What becomes of a comparison. */
typedef struct {
    const Session *session;
    const Peaks *peaks;
    const size_t *bytes;               // (FORM_COUNT) of paths_measure
    const ProfilingOptions *profiling; // with a window "": no profile
    const char *suffix;                // of the profile's files
    const char *folder;                // for compare.json; "": none
    FILE *file;                        // where it is printed, or NULL
} PathsReport;

/* Measures both paths' memory: in the place of trainer_measure, before trainer_allocate. */
CHECKED Status paths_measure(Trainer *trainer, const PathsOptions *options, size_t bytes[FORM_COUNT]);

/* Runs the comparison and leaves the trainer's state as it was. Fills `paths` and `differences`; step times
 * come from rounds of their own, with nothing else on. Needs a second copy of the state for its duration. */
CHECKED Status paths_run(Trainer *trainer, const PathsOptions *options, Comparison *comparison);

/* Runs the comparison and reports it, with the profiles of both paths where a window asks for them. */
CHECKED Status paths_report(Trainer *trainer, const PathsOptions *options, const PathsReport *report);

#ifdef __cplusplus
}
#endif
#endif
