/* gzip: a file that is compressed when its name asks for it. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* The most bytes that a file of `bytes`, compressed or not, is read for: what deflates to less than a 64th is
 * neither text nor pictures, but made to fill the memory. */
int64_t gzip_most(int64_t bytes);

/* Like file_write, all or nothing; compressed (RFC 1952) when `path` ends in ".gz". The same bytes give
 * the same file: no time and no name go into its header. */
CHECKED Status gzip_write(const char *path, const void *data, int64_t bytes);
