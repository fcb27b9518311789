/* provenance: where a profile comes from: what ran, how it was started, on what. */
#pragma once

#include "report/table.h"
#include "report/trace.h"

#include <stdio.h>

/* Of a run, a row for all that is known: "command", "processor", "--dtype". Also of one that was read from a
 * bundle. */
Table table_provenance(const TraceRun *run);

/* Prints a line "DIFFERENT batch: 4, then 8" for each setting that both runs tell and that is not the same. The date
 * is none, nor are the clocks, which differ whenever they are read. */
void provenance_print_differences(const TraceRun *before, const TraceRun *after, FILE *file);
