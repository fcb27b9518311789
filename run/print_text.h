/* print_text: what others made, on standard output: what a model writes, names of files and tokens. */
#pragma once

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

/* A TextSink (tasks/text/stream_text.h). A terminal shows as '?' what it would otherwise obey; files and pipes get
 * the bytes as they are. ERROR_FILE where it cannot be written. */
CHECKED Status print_text(void *unused, const void *bytes, int64_t count);

/* `name` within a line of a report, on `file`, with '?' for what a terminal would obey. */
void print_name(const char *name, FILE *file);
