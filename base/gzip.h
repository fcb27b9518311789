/* gzip: a file that is compressed when its name asks for it. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Like file_write, all or nothing; compressed (RFC 1952) when `path` ends in ".gz". The same bytes give
 * the same file: no time and no name go into its header. */
CHECKED Status gzip_write(const char *path, const void *data, int64_t bytes);
