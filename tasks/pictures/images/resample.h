/* resample: scales part of a picture like Pillow 13: each pixel is a weighted mean of the pixels under the
 * filter, which is widened for shrinking; pixels outside the picture have no weight. (stb_image_resize
 * repeats the border instead.) */
#pragma once

#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>

typedef struct {
    int64_t top, left, height, width;    // the part of the picture
    int64_t scaled_height, scaled_width; // the size to which that part is scaled
    int64_t first_row, first_column;     // offset of the kept part in the scaled picture
    bool mirrored;                       // the kept part is flipped horizontally
} Cut;

/* The picture's `cut` as (height, width, channels) bytes. Every thread computes the same bits. */
void image_resample(const Image *image, const Cut *cut, Resample filter, int64_t height, int64_t width,
                    uint8_t *out);
