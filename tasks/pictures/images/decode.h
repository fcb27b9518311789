/* decode: decodes a PNG, JPEG, BMP or PNM file, recognized by its contents, not its name. The bytes are
 * untrusted: the picture's size is known, and refused if too large, before anything is decoded, and bounds
 * the memory. A file that is truncated, has other data after the picture, or is not what it claims to be is
 * an ERROR_FORMAT. */
#pragma once

#include "base/status.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>

/* Pixels, interleaved, row by row. */
typedef struct {
    uint8_t *pixels; // (height, width, channels), freed by image_free
    int64_t height, width, channels;
} Image;

/* Frees the pixels and leaves an all-zero image. */
static inline void image_free(Image *image) {
    memory_free(image->pixels);
    *image = (Image){0};
}

enum {
    IMAGE_PIXELS_LIMIT = 1 << 26, // height * width
    IMAGE_PIXEL_BYTES = 32,       // most memory per pixel while decoding
    IMAGE_SIDE_LIMIT = 1 << 20,
    IMAGE_FILE_LIMIT = 1 << 28 // bytes
};

/* Decodes to 1 or 3 channels of 8 bits, like Pillow's convert("L") and convert("RGB"): alpha is dropped, grey
 * is replicated over three channels, colours are converted to grey, and 16 bits are reduced to the upper 8.
 * `name` is for messages. Thread-safe. */
CHECKED Status image_decode(const uint8_t *bytes, int64_t length, const char *name, int64_t channels,
                            Image *image);
CHECKED Status image_read_file(const char *path, int64_t channels, Image *image);

/* The grey value of a colour, by ITU-R BT.601, bit for bit as in Pillow. */
uint8_t image_grey(const uint8_t colours[3]);

/* The content of the file's headers. */
typedef struct {
    int64_t height, width;
    bool jpeg;
    bool interlaced; // of a PNG
    int64_t end;     // offset of the byte after the picture
    int64_t palette; // offset of the byte after the palette; 0: no palette
    int64_t missing; // bytes of colours that a pixel could refer to but that are missing
} ImageHeader;

/* Walks through the file's parts to its end. ERROR_FORMAT as above. */
CHECKED Status image_inspect(const uint8_t *bytes, int64_t length, const char *name, ImageHeader *header);

/* ---- jpeg.c ---- */

/* Decodes JPEG with libjpeg, which common datasets were read with: other decoders round some pixels
 * differently by one. image->channels is 3, or 0 for those of the file, and is set to 1 or 3. libjpeg keeps
 * at most `limit` bytes of coefficients. ERROR_FORMAT for a damaged file. */
CHECKED Status jpeg_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);

/* ---- stb.c ---- */

/* Decodes PNG, BMP and PNM with stb_image, in zeroed memory. Keeps the file's number of channels. It
 * allocates at most `limit` bytes in total, including memory freed meanwhile. ERROR_FORMAT for a damaged
 * file. */
CHECKED Status stb_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image);
