#include "data/images/decode.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/images/stb.h"

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

Status image_decode(const uint8_t *bytes, int64_t length, const char *name, int64_t channels, Image *image) {
    ImageHeader header;
    int width, height;
    *image = (Image){0};
    TRY(image_inspect(bytes, length, name, &header));
    stb_allow(bound(&header, length));
    uint8_t *pixels = stb_load(bytes, header.end, (int)channels, &width, &height);
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
