/* output: the reader's door: a profile on the terminal and in files. */
#pragma once

#include "report/profile.h"

/* Prints the tables, or with options->questions the answers to the seven questions, and the audit to `file`,
 * unless that is NULL. Writes into `folder`, which is made, unless it is "": profiling_stats.json (the
 * bundle), kernel_analysis_report.md (the Markdown report), gpt2_trace_bs16_seq1024.json for Perfetto (of
 * two paths gpt2_naive_trace_... and gpt2_fused_trace_...; options->trace names it otherwise), profile.html, and tables/ with a CSV file for each table and all as
 * Markdown. The options' suffix stands before the dot, and after tables. */
CHECKED Status report_profile(const Profile *profile, const ProfileOptions *options, const char *folder,
                              FILE *file);

/* Prints what is known of a run that was only timed; `label` NULL: there is one of it. */
void report_timed(const Trace *trace, const char *label, const ProfileOptions *options, FILE *file);
