/* markdown_report: a profile as a Markdown document. */
#pragma once

#include "report/questions.h"

/* What ran where, the step and its phases, the longest operations and kernels, the answers, the audit. */
void markdown_report_print(const Profile *profile, const Answers *answers, FILE *file);
