/* stb: stb_image's PNG, BMP and PNM, with zeroed and bounded memory. */
#pragma once

#include "base/status.h"
#include "tasks/pictures/images/image.h"

/* Keeps the file's number of channels. It allocates at most `limit` bytes in total, including memory freed
 * meanwhile. ERROR_FORMAT for a damaged file. */
CHECKED Status stb_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);
