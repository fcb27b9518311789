/* output: a profile on the terminal and in files. */
#pragma once

#include "report/questions.h"

/* The head of a path's report, a line: what ran on what, and where its records come from. `label` NULL: of a
 * run that was only timed. */
void profile_print_head(const char *label, const TraceRun *run, FILE *file);

/* The answers to the seven questions below their heads, if they are asked for, and the audit. */
void profile_print(const Profile *profile, const ProfileOptions *options, FILE *file);

/* Writes into `folder`, which is made: profiling_stats.json (the bundle), kernel_analysis_report.md (the
 * Markdown report), trace.json or trace.json.gz (of two paths trace_naive.json and trace_fused.json),
 * profile.html, and tables/ with a CSV file for each table and all as Markdown. The options' suffix stands
 * before the dot, and after tables. */
CHECKED Status profile_write(const Profile *profile, const char *folder, const ProfileOptions *options);
