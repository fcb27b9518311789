/* jpeg: decodes JPEG with libjpeg, which common datasets were read with: other decoders round some pixels
 * differently by one. */
#pragma once

#include "base/status.h"
#include "tasks/pictures/images/image.h"

/* image->channels is 3, or 0 for those of the file, and is set to 1 or 3. libjpeg keeps at most `limit` bytes
 * of coefficients. ERROR_FORMAT for a damaged file. */
CHECKED Status jpeg_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);
