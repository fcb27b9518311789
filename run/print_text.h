/* print_text: prints untrusted text: model output, names of files and tokens. */
#pragma once

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

/* A TextSink (tasks/text/stream_text.h) for standard output. On a terminal control characters appear as '?';
 * files and pipes get the bytes unchanged. ERROR_FILE if it cannot be written. */
CHECKED Status print_text(void *unused, const void *bytes, int64_t count);

/* Prints `name` within a line of a report to `file`, with control characters as '?' on a terminal. */
void print_name(const char *name, FILE *file);
