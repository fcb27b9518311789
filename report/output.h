/* output: the entry point of report/: writes a profile to the terminal and to files. */
#pragma once

#include "report/profile.h"

/* Prints the tables, or with options->questions the answers to the seven questions, and the audit to `file`,
 * unless that is NULL. Unless `folder` is "", creates it and writes profiling_stats.json (the bundle),
 * kernel_analysis_report_bs16_seq1024.md (the Markdown report), gpt2_trace_bs16_seq1024.json for Perfetto (with two paths
 * gpt2_naive_trace_... and gpt2_fused_trace_...; options->trace sets another name), profile.html, and tables/
 * with a CSV file per table and all tables as Markdown. The options' suffix goes before the dot, and after
 * "tables". */
CHECKED Status report_profile(const Profile *profile, const ProfileOptions *options, const char *folder,
                              FILE *file);

/* Prints the facts of a run that was only timed; `label` NULL: there is one path. */
void report_timed(const Trace *trace, const char *label, const ProfileOptions *options, FILE *file);
