/* print: prints a bundle on the terminal. */
#pragma once

#include "report/bundle_schema.h"

/* The heading of a path's report, one line: what ran on which device, and the source of its records. */
void bundle_print_head(const Bundle *bundle, const BundlePath *path, FILE *file);
void bundle_print_questions(const Bundle *bundle, FILE *file); // the questions and their answers, below the
                                                               // headings
void bundle_print_tables(const Bundle *bundle, const TableView *view, FILE *file);
void bundle_print_audit(const Bundle *bundle, FILE *file);

/* The heading of a run that was only timed. */
void run_print_head(const char *label, const TraceRun *run, FILE *file);
