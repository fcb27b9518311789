#include "run/profiling_sweep.h"

#include "run/profiling_report.h"
#include "base/wrap.h"
#include "report/sweep.h"
#include "profile/window.h"

#include <inttypes.h>

/* Takes ownership of `status`. If it is a lack of memory, prints it and returns OK. */
static Status skip_if_too_large(Status status, const char *size, FILE *file) {
    if (status_code(status) != ERROR_MEMORY) return status;
    fprintf(file, "%s is skipped: %s\n", size, status_message(status));
    status_free(status);
    return OK;
}

typedef struct {
    const ProfilingOptions *options;
    ProfileSize profile;
    void *context;
    bool files;    // there are profiles to compare
    bool announce; // announce which size is run
    bool sides;
    Table table;
    int64_t left, done; // sizes still to run, including this one; sizes in the table
} Sweep;

static Status one_size(Sweep *s, int64_t batch, int64_t seq, FILE *file) {
    char suffix[SWEEP_SUFFIX_BYTES], size[64];
    sweep_suffix(batch, seq, suffix);
    snprintf(size, sizeof size, "batch %" PRId64 ", %s %" PRId64, batch, s->sides ? "side" : "seq", seq);
    if (s->files && s->announce) fprintf(file, "%s\n", size);
    Status status = s->profile(s->context, batch, seq, suffix);
    bool last_hope = s->left-- == 1 && s->done == 0;
    if (status) return last_hope ? status : skip_if_too_large(status, size, file);
    s->done++;
    if (!s->files) return OK;
    return sweep_add(&s->table, s->options->out, batch, seq);
}

/* Each size is a row of the comparison, so it has only one window. */
static Status check_segments(const ProfilingOptions *options) {
    Window window;
    TRY(window_parse(options->window, &window));
    if (window.count == 1) return OK;
    return fail(ERROR_USAGE,
                "--profile=%.100s has %" PRId64
                " segments, but a comparison of sizes takes one, such as 2,0,1,5,1",
                options->window, window.count);
}

Status profiling_sweep(const ProfilingOptions *options, const SweepSizes *sizes, ProfileSize profile,
                       void *context, FILE *file) {
    int64_t batch = sizes->batch, seq = sizes->seq;
    OptionList batches = sizes->batches.count ? sizes->batches : (OptionList){&batch, 1};
    OptionList seqs = sizes->seqs.count ? sizes->seqs : (OptionList){&seq, 1};
    Sweep sweep = {.options = options,
                   .profile = profile,
                   .context = context,
                   .files = *options->window && *options->out,
                   .announce = file != NULL,
                   .sides = sizes->sides,
                   .table = sweep_table(),
                   .left = batches.count * seqs.count};
    if (sweep.files) TRY(check_segments(options));
    const TableView view = {.unit = options->unit,
                            .full_names = options->full_names,
                            .width = file && !options->full_names ? report_width(file) : 0,
                            .split = options->report != REPORT_BRIEF};
    Status status = OK;
    for (int64_t i = 0; i < batches.count * seqs.count && !status; i++)
        status = one_size(&sweep, batches.values[i / seqs.count], seqs.values[i % seqs.count],
                          file ? file : stderr);
    if (!status && sweep.files && file) fputc('\n', file);
    if (!status && sweep.files) status = sweep_write(&sweep.table, &view, options->out, file);
    table_free(&sweep.table);
    return status;
}
