#include "model/profiling_sweep.h"

#include "profile/sweep.h"

#include <inttypes.h>

/* Takes `status` over: OK when memory did not suffice, which is told. */
static Status pass_over(Status status, int64_t batch, int64_t seq, FILE *file) {
    if (status_code(status) != ERROR_MEMORY) return status;
    fprintf(file, "batch %" PRId64 ", seq %" PRId64 " is left out: %s\n", batch, seq, status_message(status));
    status_free(status);
    return OK;
}

static Status profile_all(Table *table, const ProfilingOptions *options, OptionList batches, OptionList seqs,
                          ProfileSize profile, void *context, FILE *file) {
    char suffix[SWEEP_SUFFIX_BYTES];
    int64_t left = batches.count * seqs.count, done = 0; // the last may fail only if some other did not
    for (int64_t i = 0; i < batches.count; i++)
        for (int64_t k = 0; k < seqs.count; k++, left--) {
            sweep_suffix(batches.values[i], seqs.values[k], suffix);
            Status status = profile(context, batches.values[i], seqs.values[k], suffix);
            if (!status) {
                TRY(sweep_add(table, options->out, batches.values[i], seqs.values[k]));
                done++;
            } else if (done || left > 1) {
                TRY(pass_over(status, batches.values[i], seqs.values[k], file ? file : stderr));
            } else {
                return status;
            }
        }
    return OK;
}

Status profiling_sweep(const ProfilingOptions *options, OptionList batches, OptionList seqs,
                       ProfileSize profile, void *context, FILE *file) {
    Table table = sweep_table();
    Status status = profile_all(&table, options, batches, seqs, profile, context, file);
    if (!status && file) fputc('\n', file);
    if (!status) status = sweep_write(&table, options->out, file);
    table_free(&table);
    return status;
}
