/* stb: stb_image's PNG, BMP and PNM, on memory that is zeroed and bounded. */
#pragma once

#include "base/status.h"
#include "tasks/pictures/images/image.h"

/* Into as many channels as the file has. What it allocates is at most `limit` bytes altogether, what it has freed
 * included. ERROR_FORMAT for a damaged file. */
CHECKED Status stb_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);
