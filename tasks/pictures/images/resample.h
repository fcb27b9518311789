/* resample: part of a picture, scaled. As Pillow 13 does it: each pixel is a mean of those beneath the filter,
 * which is as wide as what is shrunk asks for, and what lies outside does not count. (stb_image_resize
 * repeats the border there instead.) */
#pragma once

#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>

typedef struct {
    int64_t top, left, height, width;    // the part of the picture
    int64_t scaled_height, scaled_width; // what it is scaled to
    int64_t first_row, first_column;     // where in that the kept part begins
    bool mirrored;                       // the kept part, left to right
} Cut;

/* The picture's `cut` as (height, width, channels) bytes. The same bits on every thread. */
void image_resample(const Image *image, const Cut *cut, Resample filter, int64_t height, int64_t width,
                    uint8_t *out);
