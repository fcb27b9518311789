#include "run/profiling_report.h"

#include "base/memory.h"
#include "base/wrap.h"
#include "profile/brief.h"
#include "report/output.h"
#include "profile/profile.h"

#include <inttypes.h>
#include <string.h>

enum { SUFFIX_BYTES = 96 };

/* ---- lists ---- */

void trace_list_add(TraceList *list, Trace *trace) {
    list->traces = memory_grow(list->traces, &list->room, list->count + 1, sizeof *list->traces);
    list->traces[list->count++] = trace;
}

void trace_list_free(TraceList *list) {
    for (int64_t i = 0; i < list->count; i++) trace_close(list->traces[i]);
    memory_free(list->traces);
    *list = (TraceList){0};
}

/* ---- reports ---- */

static TableView view_of(const ProfilingOptions *options, FILE *file) {
    return (TableView){.unit = options->unit,
                       .limit = options->limit,
                       .sort = options->sort,
                       .full_names = options->full_names,
                       .width = options->full_names ? 0
                                : file              ? report_width(file)
                                                    : REPORT_WIDTH,
                       .split = true};
}

static unsigned names_of(const ProfilingOptions *options) {
    return (options->full_names ? NAMES_FULL : NAMES_PLAIN) | (options->op_detail ? 0 : OPERATORS_ALONE) |
           (options->thread_sep ? THREADS_SEPARATE : 0) |
           (options->targets == TARGETS_GPU ? DEVICE_ALONE : 0);
}

/* ---- a screenful ---- */

/* The sizes of a sweep are shown together, in its table. */
static bool in_table(const ProfilingOptions *options, const char *suffix) {
    return *options->out && suffix && strncmp(suffix, "_bs", 3) == 0;
}

static void print_brief(const ProfilingOptions *options, const Profile *profile, const char *suffix,
                        FILE *file) {
    if (in_table(options, suffix)) return;
    fputc('\n', file);
    brief_print(profile, report_width(file), file);
    if (*options->out)
        fprintf(file, "files    %s: profile%s.html, profiling_stats, trace, tables and report\n",
                options->out, suffix);
    fprintf(file, "more     --report=tables, --report=questions%s\n",
            *options->out ? "" : ", --profile-out=FOLDER");
}

Status profiling_report(const ProfilingOptions *options, Trace *const *traces, int count,
                        const Difference *differences, int difference_count, const char *suffix, FILE *file) {
    bool recorded = true; // --timer-only records no events
    const bool brief = options->report == REPORT_BRIEF;
    const ProfileOptions output = {.suffix = suffix,
                                   .trace = options->trace,
                                   .questions = options->report == REPORT_QUESTIONS,
                                   .names = names_of(options),
                                   .torch = options->torch,
                                   .view = view_of(options, file)};
    CLOSED_BY(profile_free) Profile profile = {0};
    if (!file && !*options->out) return OK;
    for (int i = 0; i < count; i++) recorded = recorded && traces[i]->count > 0;
    for (int i = 0; i < count && !recorded && file; i++)
        report_timed(traces[i], count > 1 ? form_name(i) : NULL, &output, file);
    if (!recorded) return OK;
    TRY(profile_make(traces, count, differences, difference_count, &profile));
    if (file && brief) print_brief(options, &profile, suffix, file);
    if (brief && !*options->out) return OK;
    return report_profile(&profile, &output, options->out, brief ? NULL : file);
}

Status profiling_report_lists(const ProfilingOptions *options, const TraceList *lists, int count,
                              const Difference *differences, int difference_count, const char *suffix,
                              FILE *file) {
    for (int64_t i = 0; i < lists[0].count && i < lists[count - 1].count; i++) {
        char full[SUFFIX_BYTES];
        snprintf(full, sizeof full, "%s", suffix);
        if (lists[0].count > 1) snprintf(full, sizeof full, "%s_segment%" PRId64, suffix, i + 1);
        Trace *traces[FORM_COUNT] = {lists[0].traces[i], lists[count - 1].traces[i]};
        TRY(profiling_report(options, traces, count, differences, difference_count, full, file));
    }
    return OK;
}
