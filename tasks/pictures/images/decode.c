#include "tasks/pictures/images/decode.h"

#include "base/checked.h"
#include "base/files.h"
#include "base/memory.h"

#include <string.h>

/* The most that stb_image allocates per pixel, in total. For 16 bits and four channels: 8 bytes inflated, 8
 * as a picture, 6 for three channels, 3 for 8 bits. An interlaced picture is inflated into twice the memory
 * when it does not fit, and then assembled from its passes. */
enum {
    BYTES_PER_PIXEL = 8 + 8 + 6 + 3,
    BYTES_INTERLACED = 16 + 8, // additional bytes for an interlaced picture
    BLOCK = 32,                // pixels to which a side may be rounded up
    TABLES = 1 << 20           // bytes for tables, for any picture
};

/* The most memory that decoding may take, in bytes. */
static size_t bound(const ImageHeader *header, int64_t length) {
    int64_t height = pieces(header->height, BLOCK) * BLOCK;
    int64_t width = pieces(header->width, BLOCK) * BLOCK;
    int64_t bytes = BYTES_PER_PIXEL + (header->interlaced ? BYTES_INTERLACED : 0);
    return (size_t)(height * width * bytes + 4 * length + TABLES);
}

/* A copy with all colours that a pixel could refer to; missing ones are black, as in Pillow. stb_image would
 * read beyond the palette. */
static uint8_t *with_all_colours(const uint8_t *bytes, const ImageHeader *header) {
    uint8_t *copy = memory_allocate((size_t)(header->end + header->missing));
    memcpy(copy, bytes, (size_t)header->palette);
    memcpy(copy + header->palette + header->missing, bytes + header->palette,
           (size_t)(header->end - header->palette));
    if (copy[0] == 'B') {
        for (int i = 0; i < 4; i++) copy[10 + i] = (uint8_t)((header->palette + header->missing) >> 8 * i);
    } else {
        int64_t length = 3 * 256, at = header->palette + header->missing - length - 8;
        for (int i = 0; i < 4; i++) copy[at + i] = (uint8_t)(length >> (24 - 8 * i));
    }
    return copy;
}

uint8_t image_grey(const uint8_t colours[3]) {
    return (uint8_t)((19595 * colours[0] + 38470 * colours[1] + 7471 * colours[2] + (1 << 15)) >> 16);
}

/* Pixels of `stored` channels, the second or fourth of which is alpha, become grey in place. */
static void make_grey(uint8_t *pixels, int64_t count, int stored) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *from = pixels + i * stored;
        pixels[i] = stored < 3 ? *from : image_grey(from);
    }
}

/* Pixels with other than three channels become colours: grey is replicated, alpha dropped. stb_image could do
 * it, but its conversion of a 16-bit PNM reads beyond the pixels. */
static void make_colours(Image *image) {
    const int64_t count = image->height * image->width, stored = image->channels;
    uint8_t *colours = memory_array((size_t)count, 3);
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < 3; c++) colours[3 * i + c] = image->pixels[i * stored + (stored < 3 ? 0 : c)];
    memory_free(image->pixels);
    image->pixels = colours;
}

static Status load(const uint8_t *bytes, int64_t length, const char *name, const ImageHeader *header,
                   Image *image) {
    if (header->jpeg) return jpeg_load(bytes, header->end, name, bound(header, length), image);
    OWNED uint8_t *copy = header->missing ? with_all_colours(bytes, header) : NULL;
    return stb_load(copy ? copy : bytes, header->end + header->missing, name, bound(header, length), image);
}

Status image_decode(const uint8_t *bytes, int64_t length, const char *name, int64_t channels, Image *image) {
    ImageHeader header;
    *image = (Image){0};
    TRY(image_inspect(bytes, length, name, &header));
    image->channels = channels == 1 ? 0 : channels; // stb_image's own grey rounds down
    TRY(load(bytes, length, name, &header, image));
    if (image->height != header.height || image->width != header.width) {
        image_free(image);
        return fail(ERROR_FORMAT, "%s: damaged: it contains two different sizes", name);
    }
    if (channels == 1) make_grey(image->pixels, header.height * header.width, (int)image->channels);
    if (channels == 3 && image->channels != 3) make_colours(image);
    image->channels = channels;
    return OK;
}

Status image_read_file(const char *path, int64_t channels, Image *image) {
    OWNED char *bytes = NULL;
    int64_t length;
    *image = (Image){0};
    TRY(file_read(path, IMAGE_FILE_LIMIT, &bytes, &length));
    return image_decode((const uint8_t *)bytes, length, path, channels, image);
}
