/* text_profile: the profile of a text that is written: of reading the prompt, and of the steps after it. */
#pragma once

#include "run/profiling_report.h"
#include "run/session.h"
#include "tasks/text/stream_text.h"

#include <stdio.h>

/* How often a prompt is read, whatever the window of the steps after it: one pass warms up, one more with
 * tracing; three are traced, and three only timed. */
#define PREFILL_WINDOW "1,0,1,3,1"

typedef struct {
    const Session *session;
    const ProfilingOptions *options;
    const Peaks *peaks; // as measured
    bool compare;       // the naive form too, whose text nobody sees
    FILE *file;         // of the reports, or NULL
} TextProfile;

/* As stream_text. First the prompt is read a few times, with its own reports and files ("_prefill"); then the
 * text is written, where each token but the first is a step of the window that the options name
 * ("_decode"). Reports are made when the text is whole. Fuses are set here; memory must suffice for either
 * form. */
CHECKED Status text_profile(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                            const TextProfile *profile, TextSink sink, void *context, TextStats *stats);

/* ERROR_USAGE for a window that begins to record after the last of `tokens`. */
CHECKED Status text_profile_check(const ProfilingOptions *options, int64_t tokens);
