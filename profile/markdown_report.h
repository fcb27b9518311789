/* markdown_report: a profile as a page of Markdown, to paste where people talk. */
#pragma once

#include "profile/answers.h"
#include "profile/profile.h"

/* What ran where, the step and its phases, the longest operations and kernels, the answers, the audit. */
void markdown_report_print(const Profile *profile, const Answers *answers, FILE *file);
