#include "tasks/pictures/images/decode.h"

#include "base/files.h"
#include "base/memory.h"
#include "tasks/pictures/images/jpeg.h"
#include "tasks/pictures/images/stb.h"

#include <string.h>

/* What stb_image allocates for a pixel, altogether: of 16 bits and four channels 8 bytes inflated, 8 as a
 * picture, 6 of three channels, 3 of 8 bits. An interlaced one is inflated into twice the room once it does
 * not fit, and put together of its passes. */
enum {
    BYTES_PER_PIXEL = 8 + 8 + 6 + 3,
    BYTES_INTERLACED = 16 + 8, // besides
    BLOCK = 32,                // pixels that a side may be rounded up to
    TABLES = 1 << 20           // bytes, of any picture
};

/* What decoding may take, in bytes. */
static size_t bound(const ImageHeader *header, int64_t length) {
    int64_t height = (header->height + BLOCK - 1) / BLOCK * BLOCK;
    int64_t width = (header->width + BLOCK - 1) / BLOCK * BLOCK;
    int64_t bytes = BYTES_PER_PIXEL + (header->interlaced ? BYTES_INTERLACED : 0);
    return (size_t)(height * width * bytes + 4 * length + TABLES);
}

/* A copy in which every colour that a pixel could name is there: black, as for Pillow. stb_image looks behind
 * those that are. */
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

/* Pixels of `stored` channels, of which a second or fourth is alpha, become grey where they are. */
static void make_grey(uint8_t *pixels, int64_t count, int stored) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *from = pixels + i * stored;
        pixels[i] = stored < 3 ? *from : image_grey(from);
    }
}

/* Pixels of other channels than three become colours: grey is spread, alpha left out. stb_image could do it, but its conversion
 * of a PNM of 16 bits reads behind the pixels. */
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
    image->channels = channels == 1 ? 0 : channels; // stb_image's own grey is rounded down
    TRY(load(bytes, length, name, &header, image));
    if (image->height != header.height || image->width != header.width) {
        image_free(image);
        return fail(ERROR_FORMAT, "%s: damaged: it says two sizes", name);
    }
    if (channels == 1) make_grey(image->pixels, header.height * header.width, (int)image->channels);
    if (channels == 3 && image->channels != 3) make_colours(image);
    image->channels = channels;
    return OK;
}

Status image_read_file(const char *path, int64_t channels, Image *image) {
    char *bytes;
    int64_t length;
    *image = (Image){0};
    TRY(file_read(path, IMAGE_FILE_LIMIT, &bytes, &length));
    Status status = image_decode((const uint8_t *)bytes, length, path, channels, image);
    memory_free(bytes);
    return status;
}
