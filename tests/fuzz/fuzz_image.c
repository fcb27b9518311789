/* Fuzzes pictures: a decoded picture must have the size in its header, and the same bytes each time. The
 * checksums of a mutated PNG are corrected, and it is tried again. */
#include "base/memory.h"
#include "tasks/pictures/images/decode.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <zlib.h>

enum { PIXELS = 1 << 14 }; // larger pictures are only inspected, because they are slow

/* Makes unwritten stack memory of a decoder differ each time. */
static void stain_stack(int byte) {
    uint8_t stain[1 << 15];
    memset(stain, byte, sizeof stain);
    __asm__ volatile("" ::"r"(stain) : "memory");
}

static void decode(const uint8_t *data, int64_t size, int64_t channels) {
    ImageHeader header;
    Image image, again;
    Status status = image_inspect(data, size, "input", &header);
    bool small = !status && header.height * header.width <= PIXELS;
    status_free(status);
    if (!small) return;
    stain_stack(0x11);
    status = image_decode(data, size, "input", channels, &image);
    must(!status == (image.pixels != NULL));
    if (!status) {
        must(image.height == header.height && image.width == header.width && image.channels == channels);
        scratch_put("image", data, (size_t)size);
        stain_stack(0xEE);
        must(!image_read_file(SCRATCH "/image", channels, &again));
        must(memcmp(image.pixels, again.pixels, (size_t)(image.height * image.width * channels)) == 0);
        image_free(&again);
    }
    image_free(&image);
    status_free(status);
}

/* Corrects the checksums of a PNG's chunks; false for other files. */
static bool mend_checksums(uint8_t *data, size_t size) {
    if (size < 8 || memcmp(data, "\x89PNG\r\n\x1A\n", 8) != 0) return false;
    for (size_t at = 8; size - at >= 12;) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 |
                        (size_t)data[at + 3];
        if (length > size - at - 12) break;
        uLong sum = crc32(0, data + at + 4, (uInt)length + 4);
        for (size_t i = 0; i < 4; i++) data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + 12;
    }
    return true;
}

static void read_image(const uint8_t *data, size_t size) {
    decode(data, (int64_t)size, 3);
    decode(data, (int64_t)size, 1);
    uint8_t *mended = memory_allocate(size);
    if (size) memcpy(mended, data, size);
    if (mend_checksums(mended, size)) decode(mended, (int64_t)size, 3);
    memory_free(mended);
}

FUZZ(image, read_image, NULL)
