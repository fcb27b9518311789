/* write: writes a picture with stb_image_write, as PNG or JPEG by the path's ending. */
#pragma once

#include "tasks/pictures/images/decode.h"

/* ERROR_USAGE for another ending. */
CHECKED Status image_write(const char *path, const Image *image);
