/* print_text: what a model writes, on standard output. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* A TextSink (app/stream_text.h). A terminal shows as '?' what it would otherwise obey; files and pipes get
 * the bytes as they are. ERROR_FILE where it cannot be written. */
CHECKED Status print_text(void *unused, const void *bytes, int64_t count);
