#include "data/images/decode.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/images/stb.h"

#include <string.h>

enum {
    BYTES_PER_PIXEL =
        40,          // of an interlaced PNG of 16 bits and four channels: inflated, in passes, whole, ...
    BLOCK = 32,      // pixels that a side may be rounded up to
    TABLES = 1 << 20 // bytes, of any picture
};

/* What decoding may take, in bytes. */
static size_t bound(const ImageHeader *header, int64_t length) {
    int64_t height = (header->height + BLOCK - 1) / BLOCK * BLOCK;
    int64_t width = (header->width + BLOCK - 1) / BLOCK * BLOCK;
    return (size_t)(height * width * BYTES_PER_PIXEL + 4 * length + TABLES);
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

Status image_decode(const uint8_t *bytes, int64_t length, const char *name, int64_t channels, Image *image) {
    ImageHeader header;
    int width, height;
    *image = (Image){0};
    TRY(image_inspect(bytes, length, name, &header));
    stb_allow(bound(&header, length));
    uint8_t *copy = header.missing ? with_all_colours(bytes, &header) : NULL;
    uint8_t *pixels =
        stb_load(copy ? copy : bytes, header.end + header.missing, (int)channels, &width, &height);
    memory_free(copy);
    if (!pixels) return fail(ERROR_FORMAT, "%s: damaged: %s", name, stbi_failure_reason());
    *image = (Image){pixels, height, width, channels};
    if (height == header.height && width == header.width) return OK;
    image_free(image);
    return fail(ERROR_FORMAT, "%s: damaged: it says two sizes", name);
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

void image_free(Image *image) {
    memory_free(image->pixels);
    *image = (Image){0};
}
