/* report: the output of ./train, on the terminal and as events in the log. */
#pragma once

#include "base/cores.h"
#include "run/feed.h"
#include "run/profiling.h"
#include "run/trainer.h"
#include "profile/events.h"
#include "run/peaks.h"
#include "base/stats.h"
#include "report/tensorboard.h"
#include "run/progress.h"

typedef enum { STEP_MS, STEP_TOKENS_PER_S, STEP_FLOPS_PER_S, STEP_FIGURES } StepFigure;

typedef struct {
    Progress *progress;
    Events *events;
    TensorBoard *board; // may be NULL
    Peaks peaks;
    bool pictures;                // the model reads pictures instead of tokens
    int64_t steps;                // steps of the whole run
    Series figures[STEP_FIGURES]; // figures of this process's last steps, in order
    double next_line;             // when the next step's line is due: seconds of device_clock
    int64_t passed[2];            // number of skipped items reported, of training and validation
    double waited_ms;             // total time spent waiting for data
    CoreTimes cores;              // core times when the steps began
    double cores_waited;          // share of the time waited for cores since then, updated when a line is due
    double planned;               // bytes of the memory plan
} Report;

/* `done` of `steps` steps are complete. `log` is a path or ""; a resumed run appends to it. */
CHECKED Status report_open(Report *report, const char *log, bool append, int64_t done, int64_t steps,
                           bool quiet);
void report_close(Report *report);

/* Prints the configuration table and the memory plan. `options` is the run's options as one line of JSON. */
CHECKED Status report_start(Report *report, const Session *session, const Trainer *trainer, const Feed *feed,
                            const char *options, bool quiet);

/* Reports step `step`, from 1. */
CHECKED Status report_step(Report *report, const Trainer *trainer, int64_t step, const StepResult *result,
                           double learning_rate, const StepCost *cost);
CHECKED Status report_validation(Report *report, int64_t step, const Validation *validation);
/* Reports items that could not be read since the last call and were skipped. */
CHECKED Status report_passed(Report *report, int64_t step, const Feed *feed);
CHECKED Status report_sample(Report *report, int64_t step, const char *text, int64_t length);
CHECKED Status report_save(Report *report, int64_t step, const char *folder);

/* Reports medians of the late steps and the spread of their times. `reason`: "done", "interrupted" or
 * "diverged". */
CHECKED Status report_end(Report *report, int64_t step, const char *reason);
