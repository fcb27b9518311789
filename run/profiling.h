/* profiling: a run's profile: which of its steps are traced, when a report is due, and its printing. */
#pragma once

#include "base/memory.h"
#include "run/profiling_report.h"
#include "run/session.h"
#include "comm/comm.h"
#include "data/loader.h"
#include "report/trace.h"

#include <stdio.h>

typedef struct Profiling Profiling;

/* What a trace says of the session: model, precision, limits. Of a run of `program` over micro-batches
 * (batch, seq), `accum` of them in a step. Its texts are the session's, or literals. */
TraceRun profiling_facts(const Session *session, const char *program, const Peaks *measured, int64_t batch,
                         int64_t seq, int64_t accum);

/* What must be done before the device is opened. */
void profiling_prepare(const ProfilingOptions *options);

/* Reports go to `file`, unless that is NULL, and into the folder that the options name, with `suffix`
 * before the dot of the files' names. `facts` and its texts must live until profiling_close. Steps run
 * without graphs until the last report is made, unless the options ask for graphs and CUPTI can tell their
 * kernels apart. */
CHECKED Status profiling_open(const ProfilingOptions *options, Ctx *ctx, const TraceRun *facts,
                              const char *suffix, FILE *file, Profiling **profiling);

/* What a step took. */
typedef struct {
    double ms;
    double reader_ms; // of it, waiting for data
    int64_t tokens;   // that were read or made; 0: batch * seq * accum
} StepCost;

/* A step's work, inside a scope named "step" and waited for. May set reader_ms and tokens. */
typedef Status (*StepWork)(Ctx *ctx, void *program, StepCost *cost);

/* Runs step `step`, from 1, and measures its time; traces it where the window says so. The first call is this
 * process's first step. `profiling` may be NULL, and so may `cost`. The arenas' peaks begin anew with each
 * segment. */
CHECKED Status profiling_step(Profiling *profiling, Ctx *ctx, int64_t step, StepWork work, void *program,
                              StepCost *cost);

/* Runs the work naive and with `fuses`, and gives out the largest differences between their outputs: to be
 * freed with memory_free. All outputs of a run lie in host memory. */
CHECKED Status profiling_differences(Ctx *ctx, uint32_t fuses, StepWork work, void *program,
                                     Difference **differences, int *count);

/* How many tokens the sequences of a step turned out to have, where that was not known before. */
void profiling_set_seq(Profiling *profiling, int64_t seq);

/* Collective, as what hands out a report is from then on: rank 0's traces get those of the other ranks, which
 * report nothing. `comm` may be NULL. */
void profiling_share(Profiling *profiling, Comm *comm);

/* Batches that it has read ahead when a window ends belong to the trace too. */
void profiling_read_ahead(Profiling *profiling, Loader *loader);

/* From now on traces go into `list` instead of being reported: for profiling_report_lists. */
void profiling_keep(Profiling *profiling, TraceList *list);

/* What validation gave: the report shows all that came before it, and the files at the end of the run all. */
void profiling_validated(Profiling *profiling, TraceValidation validation);

/* Nothing more will be recorded or timed. */
bool profiling_done(const Profiling *profiling);

/* Makes the report of a segment that the end of the run cut short; writes the last one's files again where
 * validation has come since. */
CHECKED Status profiling_finish(Profiling *profiling, Ctx *ctx);
void profiling_close(Profiling *profiling);
CLOSER(profiling_release, Profiling, profiling_close)
