/* profiling_sweep: profiles several sizes of a run, one after another, and compares them (--sweep). */
#pragma once

#include "run/profiling_options.h"

#include <stdio.h>

/* Profiles one size; `suffix` becomes part of its files' names and lives until it returns. */
typedef Status (*ProfileSize)(void *context, int64_t batch, int64_t seq, const char *suffix);

/* Lists of sizes; for an empty list, `batch` or `seq` applies. */
typedef struct {
    OptionList batches, seqs;
    int64_t batch, seq;
    bool sides; // lengths are sides of pictures
} SweepSizes;

/* Profiles every batch size with every length. With a window and a folder for the files it then prints a
 * table of all sizes to `file`, unless that is NULL, and writes it to the profiles' folder. A size that does
 * not fit in memory is skipped with a message; if none fits, that ERROR_MEMORY is returned. */
CHECKED Status profiling_sweep(const ProfilingOptions *options, const SweepSizes *sizes, ProfileSize profile,
                               void *context, FILE *file);
