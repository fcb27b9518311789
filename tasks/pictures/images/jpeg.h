/* jpeg: a JPEG's pixels by libjpeg, with which the world's data sets were read: other decoders round some by
 * one. */
#pragma once

#include "base/status.h"
#include "tasks/pictures/images/image.h"

/* image->channels are 3, or 0 for those of the file, which they become: 1 or 3. libjpeg keeps at most `limit`
 * bytes of coefficients. ERROR_FORMAT for a damaged file. */
CHECKED Status jpeg_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);
