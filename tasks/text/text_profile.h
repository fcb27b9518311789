/* text_profile: profiles generation: reading the prompt, and the steps after it. */
#pragma once

#include "run/profiling_report.h"
#include "run/session.h"
#include "tasks/text/stream_text.h"

#include <stdio.h>

/* The window for reading the prompt, whatever the window of the later steps: one warm-up pass, one more with
 * tracing; three traced passes, and three timed ones. */
#define PREFILL_WINDOW "1,0,1,3,1"

typedef struct {
    const Session *session;
    const ProfilingOptions *options;
    const Peaks *peaks; // limits, as measured
    bool compare;       // also the naive form, whose text is not shown
    FILE *file;         // destination of the reports, or NULL
} TextProfile;

/* Like stream_text. First the prompt is read a few times, with its own reports and files ("_prefill"). Then
 * the text is generated, where each token but the first is a step of the window in the options ("_decode").
 * Reports are made when the text is complete. Sets fuses; memory must suffice for both forms. */
CHECKED Status text_profile(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                            const TextProfile *profile, TextSink sink, void *context, TextStats *stats);

/* ERROR_USAGE for a window that begins to record after the last of `tokens`. */
CHECKED Status text_profile_check(const ProfilingOptions *options, int64_t tokens);
