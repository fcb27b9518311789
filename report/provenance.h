/* provenance: how a profile was made: program, command line, machine, libraries and options. */
#pragma once

#include "report/table.h"
#include "report/trace.h"

#include <stdio.h>

/* A table with a row per known fact of the run: "command", "processor", "--dtype". The run may come from a
 * trace or from a bundle. */
Table table_provenance(const TraceRun *run);

/* Prints a line such as "DIFFERENT batch: 4, then 8" for each fact that both runs have and that differs.
 * Date and clocks are left out, because they differ on every reading. */
void provenance_print_differences(const TraceRun *before, const TraceRun *after, FILE *file);
