/* markdown_report: a profile as a Markdown document. */
#pragma once

#include "report/bundle_schema.h"

/* Device and configuration, the step and its phases, the longest operations and kernels, the answers, the
 * audit. */
void markdown_report_print(const Bundle *bundle, FILE *file);
