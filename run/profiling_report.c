#include "run/profiling_report.h"

#include "base/files.h"
#include "base/memory.h"
#include "profile/brief.h"
#include "report/output.h"
#include "profile/profile.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>

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

static TableView view_of(const ProfilingOptions *options) {
    return (TableView){.unit = options->unit,
                       .limit = options->limit,
                       .sort = options->sort,
                       .full_names = options->full_names};
}

static unsigned names_of(const ProfilingOptions *options) {
    return (options->torch ? NAMES_TORCH : NAMES_PLAIN) | (options->full_names ? NAMES_FULL : NAMES_PLAIN);
}

static void print_tables(const ProfilingOptions *options, const char *label, const Figures *figures,
                         FILE *file) {
    const TableView view = view_of(options);
    Tables tables;
    tables_make(figures, names_of(options), &tables);
    fputc('\n', file);
    profile_print_head(label, &figures->trace->run, file);
    for (int i = 0; i < tables.count; i++) {
        table_arrange(&tables.tables[i], &view);
        fputc('\n', file);
        table_print_text(&tables.tables[i], &view, file);
    }
    tables_free(&tables);
}

static void print_timed(const ProfilingOptions *options, Trace *const *traces, int count, FILE *file) {
    for (int i = 0; i < count; i++) {
        const Figures figures = {.trace = traces[i]};
        print_tables(options, count > 1 ? form_name((Form)i) : NULL, &figures, file);
    }
}

/* ---- a screenful ---- */

int terminal_width(FILE *file) {
    enum { PAGE = 80 };
    struct winsize size;
    bool known = ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : PAGE;
}

/* The sizes of a sweep come together, in its table. */
static bool in_table(const ProfilingOptions *options, const char *suffix) {
    return *options->out && suffix && strncmp(suffix, "_bs", 3) == 0;
}

static void print_brief(const ProfilingOptions *options, const Profile *profile, const char *suffix,
                        FILE *file) {
    if (in_table(options, suffix)) return;
    fputc('\n', file);
    brief_print(profile, terminal_width(file), file);
    if (*options->out)
        fprintf(file, "files    %s: profile%s.html, profiling_stats, trace, tables, report\n", options->out,
                suffix);
    fprintf(file, "more     --report=tables, --report=questions%s\n",
            *options->out ? "" : ", --profile-out=FOLDER");
}

static void print_all(const ProfilingOptions *options, const Profile *profile, const ProfileOptions *output,
                      FILE *file) {
    for (int i = 0; i < profile->count && !output->questions; i++)
        print_tables(options, profile->paths[i].label, &profile->paths[i].figures, file);
    fputc('\n', file);
    profile_print(profile, output, file);
}

Status profiling_report(const ProfilingOptions *options, Trace *const *traces, int count,
                        const Difference *differences, int difference_count, const char *suffix, FILE *file) {
    Status status = OK;
    bool recorded = true; // --timer-only records no events
    if (!file && !*options->out) return OK;
    for (int i = 0; i < count; i++) recorded = recorded && traces[i]->count > 0;
    if (!recorded) {
        if (file) print_timed(options, traces, count, file);
        return OK;
    }
    const ProfileOptions output = {.suffix = suffix,
                                   .compress = path_ends_with(options->trace, ".gz"),
                                   .questions = options->report == REPORT_QUESTIONS,
                                   .names = names_of(options),
                                   .view = view_of(options)};
    Profile profile;
    TRY(profile_make(traces, count, differences, difference_count, &output, &profile));
    if (file && options->report == REPORT_BRIEF)
        print_brief(options, &profile, suffix, file);
    else if (file)
        print_all(options, &profile, &output, file);
    if (!status && *options->out) status = profile_write(&profile, options->out, &output);
    profile_free(&profile);
    return status;
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
