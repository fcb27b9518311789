/* profiling: a run's profile: traces the steps of its window and reports them. */
#pragma once

#include "base/memory.h"
#include "run/profiling_report.h"
#include "run/session.h"
#include "comm/comm.h"
#include "data/loader.h"
#include "report/trace.h"

#include <stdio.h>

typedef struct Profiling Profiling;

/* The facts of a trace's session: model, precision, limits, for a run of `program` with micro-batches (batch,
 * seq), `accum` per step. Its texts belong to the session or are literals. */
TraceRun profiling_facts(const Session *session, const char *program, const Peaks *measured, int64_t batch,
                         int64_t seq, int64_t accum);

/* Must be called before the device is opened. */
void profiling_prepare(const ProfilingOptions *options);

/* Reports go to `file`, unless that is NULL, and to the folder in the options, with `suffix` before the dot
 * of the files' names. `facts` and its texts must live until profiling_close. Steps run without graphs until
 * the last report is made, unless the options ask for graphs and CUPTI can record the kernels inside them. */
CHECKED Status profiling_open(const ProfilingOptions *options, Ctx *ctx, const TraceRun *facts,
                              const char *suffix, FILE *file, Profiling **profiling);

/* Costs of a step. */
typedef struct {
    double ms;
    double reader_ms; // time waiting for data
    int64_t tokens;   // tokens read or generated; 0: batch * seq * accum
} StepCost;

/* A step's work, which runs inside a scope named "step" and is waited for. May set reader_ms and tokens. */
typedef Status (*StepWork)(Ctx *ctx, void *program, StepCost *cost);

/* Runs step `step`, from 1, measures its time, and traces it if the window says so. The first call is this
 * process's first step. `profiling` and `cost` may be NULL. The arenas' peaks are reset with each segment. */
CHECKED Status profiling_step(Profiling *profiling, Ctx *ctx, int64_t step, StepWork work, void *program,
                              StepCost *cost);

/* Runs the work naive and with `fuses`, and returns the largest differences between their outputs; the caller
 * frees them with memory_free. All outputs of a run are kept in host memory. */
CHECKED Status profiling_differences(Ctx *ctx, uint32_t fuses, StepWork work, void *program,
                                     Difference **differences, int *count);

/* Sets the number of tokens in a step's sequences, if it was not known before. */
void profiling_set_seq(Profiling *profiling, int64_t seq);

/* Collective, and so are all later calls that report: rank 0's traces include those of the other ranks, which
 * report nothing. `comm` may be NULL. */
void profiling_share(Profiling *profiling, Comm *comm);

/* Adds the prefetched batches at the end of a window to the trace. */
void profiling_read_ahead(Profiling *profiling, Loader *loader);

/* From now on traces go to `list` instead of being reported: for profiling_report_lists. */
void profiling_keep(Profiling *profiling, TraceList *list);

/* Adds a validation result. Each report includes the results so far, and the files at the end of the run
 * include all. */
void profiling_validated(Profiling *profiling, TraceValidation validation);

/* Nothing more will be recorded or timed. */
bool profiling_done(const Profiling *profiling);

/* Reports a segment that the end of the run cut short; writes the last report's files again if validation has
 * run since. */
CHECKED Status profiling_finish(Profiling *profiling, Ctx *ctx);
void profiling_close(Profiling *profiling);
CLOSER(profiling_release, Profiling, profiling_close)
