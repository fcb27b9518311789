/* write: a picture into a file, by stb_image_write: as PNG or JPEG, as the path's ending says. */
#pragma once

#include "tasks/pictures/images/decode.h"

/* ERROR_USAGE for another ending. */
CHECKED Status image_write(const char *path, const Image *image);
