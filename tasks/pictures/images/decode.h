/* decode: one picture, from the bytes of a PNG, JPEG, BMP or PNM file. Its contents say which it is, not its
 * name. The bytes may come from a stranger: the picture's size is known, and refused if too large, before
 * anything is decoded; memory is bounded by it; a file that is cut off, that has something else behind the
 * picture's end, or that is not what it says, is an ERROR_FORMAT. */
#pragma once

#include "base/status.h"
#include "tasks/pictures/images/image.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    IMAGE_PIXELS_LIMIT = 1 << 26, // height * width
    IMAGE_PIXEL_BYTES = 32,       // of memory that a pixel takes at most while it is decoded
    IMAGE_SIDE_LIMIT = 1 << 20,
    IMAGE_FILE_LIMIT = 1 << 28 // bytes
};

/* Into 1 or 3 channels of 8 bits, as Pillow's convert("L") and convert("RGB") do: an alpha channel is left
 * out; grey is spread over three channels, and colours are weighed into one; of 16 bits the upper 8 are kept.
 * `name` is for messages. Threads may decode at once. */
CHECKED Status image_decode(const uint8_t *bytes, int64_t length, const char *name, int64_t channels,
                            Image *image);
CHECKED Status image_read_file(const char *path, int64_t channels, Image *image);

/* What three colours weigh as one, by ITU-R BT.601, to the bits of Pillow's. */
uint8_t image_grey(const uint8_t colours[3]);

/* What the file's own headers say. */
typedef struct {
    int64_t height, width;
    bool jpeg;
    bool interlaced; // a PNG
    int64_t end;     // byte behind the picture
    int64_t palette; // byte behind the colours that pixels name; 0: they name none
    int64_t missing; // bytes of those that a pixel could name, and that are not there
} ImageHeader;

/* Walks through the file's parts to its end. ERROR_FORMAT as above. */
CHECKED Status image_inspect(const uint8_t *bytes, int64_t length, const char *name, ImageHeader *header);
