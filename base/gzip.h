/* gzip: reading and writing compressed files. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* The limit on the decompressed size of a file of `bytes`. A higher compression ratio than 64 indicates a
 * decompression bomb. */
int64_t gzip_most(int64_t bytes);

/* Like file_write, atomic; compressed (RFC 1952) if `path` ends in ".gz". The header has no time and no
 * name, so equal data gives equal files. */
CHECKED Status gzip_write(const char *path, const void *data, int64_t bytes);
