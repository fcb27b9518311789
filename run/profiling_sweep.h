/* profiling_sweep: the profiles of several sizes of a run, one after another, and their comparison
 * (--sweep). */
#pragma once

#include "run/profiling_options.h"

#include <stdio.h>

/* Profiles one size; `suffix` goes into the names of its files and lives until it returns. */
typedef Status (*ProfileSize)(void *context, int64_t batch, int64_t seq, const char *suffix);

/* Lists; where one is empty, the single size beside it. */
typedef struct {
    OptionList batches, seqs;
    int64_t batch, seq;
    bool sides; // the lengths are pictures' sides
} SweepSizes;

/* Profiles every batch with every length. With a window and a folder for the files it then prints a table
 * of all to `file`, unless that is NULL, and writes it beside the profiles. A size for which memory does
 * not suffice is left out, which is said; if none fits, that is the ERROR_MEMORY that is returned. */
CHECKED Status profiling_sweep(const ProfilingOptions *options, const SweepSizes *sizes, ProfileSize profile,
                               void *context, FILE *file);
