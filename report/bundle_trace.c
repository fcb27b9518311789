#include "report/bundle_trace.h"

#include "base/memory.h"

#include <string.h>

static TraceSource source_of(const char *name) {
    int source = SOURCE_CLOCK;
    while (source > 0 && strcmp(name, source_name((TraceSource)source)) != 0) source--;
    return (TraceSource)source;
}

/* Sets the facts of the run that do not depend on the rank: where it ran, and the length of each step. */
static void set_run_facts(const Bundle *b, const BundlePath *path, const RankEvents *rank) {
    TraceRun *run = &rank->trace->run;
    const TraceRun own = *run;
    *run = b->run;
    run->source = source_of(path->source);
    run->source_note = path->source_note;
    run->window = path->window;
    run->left_out = rank->left_out;
    run->steps = 0;
    for (int64_t i = 0; i < rank->trace->count; i++) run->steps += rank->trace->events[i].kind == TRACE_STEP;
    run->host = rank->host;
    run->device = rank->device;
    run->rank = (int32_t)rank->rank;
    run->ranks = (int32_t)path->recorded_count;
    run->traced_ms = own.traced_ms;
    run->step_ms = own.step_ms;
    run->reader_ms = own.reader_ms;
    run->step_tokens = own.step_tokens;
    run->traced_tokens = own.traced_tokens;
    run->traced_count = own.traced_count;
    run->step_count = own.step_count;
    memory_free(own.settings);
    trace_set_settings(rank->trace, b->run.settings, b->run.settings_count);
}

Status bundle_trace(const Bundle *b, int64_t index, BundleTrace *made) {
    const BundlePath *path = &b->paths[index];
    *made = (BundleTrace){0};
    if (!path->recorded_count)
        return fail(ERROR_FORMAT,
                    "path %s: the profile holds no recorded events, since %s, which wrote it, kept none; "
                    "profile again with this one",
                    path->label, b->run.version && *b->run.version ? b->run.version : "an older fusebox");
    for (int64_t i = 0; i < path->recorded_count; i++) {
        RankEvents *rank = &path->recorded[i];
        set_run_facts(b, path, rank);
        TRY(trace_finish(rank->trace));
    }
    made->others = memory_array((size_t)path->recorded_count, sizeof *made->others);
    for (int64_t i = 1; i < path->recorded_count; i++) made->others[i - 1] = path->recorded[i].trace;
    made->trace = *path->recorded[0].trace;
    made->trace.others = made->others;
    made->trace.other_count = (int32_t)path->recorded_count - 1;
    return OK;
}

void bundle_trace_free(BundleTrace *made) {
    memory_free(made->others);
    *made = (BundleTrace){0};
}
