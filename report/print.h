/* print: a bundle on the terminal. */
#pragma once

#include "report/bundle_schema.h"

/* The head of a path's report, a line: what ran on what, and where its records come from. */
void bundle_print_head(const Bundle *bundle, const BundlePath *path, FILE *file);
void bundle_print_questions(const Bundle *bundle, FILE *file); // and their answers, below the heads
void bundle_print_tables(const Bundle *bundle, const TableView *view, FILE *file);
void bundle_print_audit(const Bundle *bundle, FILE *file);

/* The head of a run that was only timed. */
void run_print_head(const char *label, const TraceRun *run, FILE *file);
