/* Walks through a file's parts before a library reads it: sizes, and the end of the picture. */
#include "tasks/pictures/images/decode.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

/* Limits for a progressive JPEG: scans, each of which covers the whole picture; and pixels over all scans. */
enum { SCANS_LIMIT = 200, SCAN_PIXELS_LIMIT = 1 << 30 };

typedef struct {
    const uint8_t *bytes;
    int64_t length, at;
    const char *name;
    ImageHeader *header;
} Walk;

static Status cut_off(const Walk *w) {
    return fail(ERROR_FORMAT, "%s: cut off: the file ends inside the picture", w->name);
}

static Status damaged(const Walk *w, const char *what) {
    return fail(ERROR_FORMAT, "%s: damaged: %s", w->name, what);
}

static bool has(const Walk *w, int64_t bytes) {
    return bytes <= w->length - w->at;
}

static int64_t big(const uint8_t *at, int bytes) {
    int64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

static int64_t little(const uint8_t *at, int bytes) {
    int64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static Status check_size(const Walk *w, int64_t height, int64_t width) {
    if (height < 1 || width < 1) return damaged(w, "it has no pixels");
    if (height > IMAGE_SIDE_LIMIT || width > IMAGE_SIDE_LIMIT || height * width > IMAGE_PIXELS_LIMIT)
        return fail(ERROR_FORMAT, "%s: %lld x %lld pixels are too many: at most %d are read", w->name,
                    (long long)width, (long long)height, IMAGE_PIXELS_LIMIT);
    w->header->height = height;
    w->header->width = width;
    return OK;
}

/* ---- JPEG ---- */

/* Skips a scan's entropy-coded bytes, to the next marker: within them a byte of FF is followed by 0, or by a
 * restart marker. */
static Status skip_scan(Walk *w) {
    while (has(w, 2)) {
        const uint8_t *next = memchr(w->bytes + w->at, 0xFF, (size_t)(w->length - 1 - w->at));
        if (!next) break;
        w->at = next - w->bytes;
        if (next[1] != 0 && next[1] != 0xFF && (next[1] < 0xD0 || next[1] > 0xD7)) return OK;
        w->at += next[1] == 0xFF ? 1 : 2;
    }
    return cut_off(w);
}

/* The segment at w->at, after its marker: it begins with its length. */
static Status jpeg_segment(Walk *w, int marker, int *scans) {
    const uint8_t *s = w->bytes + w->at;
    bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    int64_t length = has(w, 2) ? big(s, 2) : 2;
    if (!has(w, length)) return cut_off(w);
    if (length < 2 || (frame && length < 8)) return damaged(w, "a part of the JPEG is too short");
    if (frame && marker > 0xC2)
        return fail(ERROR_FORMAT, "%s: a lossless or arithmetic JPEG, which is not read", w->name);
    if (frame && w->header->height) return damaged(w, "the JPEG has two frames");
    if (frame) TRY(check_size(w, big(s + 3, 2), big(s + 5, 2)));
    w->at += length;
    if (marker != 0xDA) return OK;
    if (!w->header->height) return damaged(w, "the JPEG has no frame");
    if (++*scans > SCANS_LIMIT || *scans * w->header->height * w->header->width > SCAN_PIXELS_LIMIT)
        return damaged(w, "the JPEG has too many scans");
    return skip_scan(w);
}

static Status walk_jpeg(Walk *w) {
    int scans = 0;
    for (w->at = 2; has(w, 2);) {
        if (w->bytes[w->at] != 0xFF) return damaged(w, "what follows a part of the JPEG is none");
        int marker = w->bytes[w->at + 1];
        w->at += marker == 0xFF ? 1 : 2; // a marker may be preceded by any number of FF
        if (marker == 0xFF || marker == 1) continue;
        if (marker == 0xD9) return scans ? OK : damaged(w, "the JPEG has no scan");
        if (marker == 0 || (marker >= 0xD0 && marker <= 0xD8)) return damaged(w, "a part of the JPEG");
        TRY(jpeg_segment(w, marker, &scans));
    }
    return cut_off(w);
}

/* ---- PNG ---- */

/* Width, height, bits, colours, compression, filter and interlacing. An interlaced picture of 16 bits takes
 * twice the memory of any other, so its pixels count twice. */
static Status png_header(Walk *w, const uint8_t *data) {
    const bool interlaced = data[12] != 0, deep = data[8] == 16;
    const int64_t height = big(data + 4, 4), width = big(data, 4);
    w->header->interlaced = interlaced;
    TRY(check_size(w, height, width));
    if (!interlaced || !deep || 2 * height * width <= IMAGE_PIXELS_LIMIT) return OK;
    return fail(ERROR_FORMAT,
                "%s: %lld x %lld pixels are too many for an interlaced PNG of 16 bits: at most %d are read",
                w->name, (long long)width, (long long)height, IMAGE_PIXELS_LIMIT / 2);
}

enum { PNG_PALETTE_BYTES = 3 * 256 };

/* The palette of an indexed picture. */
static Status png_palette(Walk *w, int64_t length) {
    if (w->header->palette || length > PNG_PALETTE_BYTES) return damaged(w, "the PNG's palette");
    w->header->palette = w->at + 8 + length;
    w->header->missing = PNG_PALETTE_BYTES - length;
    return OK;
}

static Status walk_png(Walk *w) {
    for (w->at = 8; has(w, 12);) {
        const uint8_t *chunk = w->bytes + w->at;
        int64_t length = big(chunk, 4);
        bool first = w->at == 8, header = memcmp(chunk + 4, "IHDR", 4) == 0;
        if (!has(w, length + 12)) break;
        if (crc32(0, chunk + 4, (uInt)(length + 4)) != (uLong)big(chunk + 8 + length, 4))
            return damaged(w, "a checksum of the PNG does not fit");
        if (first != header || (first && length != 13)) return damaged(w, "the PNG's header");
        if (header) TRY(png_header(w, chunk + 8));
        if (memcmp(chunk + 4, "PLTE", 4) == 0 && w->bytes[25] == 3) TRY(png_palette(w, length));
        w->at += length + 12;
        if (memcmp(chunk + 4, "IEND", 4) == 0) return OK;
    }
    return cut_off(w);
}

/* ---- BMP ---- */

/* stb_image treats everything between the header and the pixels as the palette, except 12 bytes after a
 * header of 12. */
static Status bmp_palette(Walk *w, int64_t header, int64_t bits) {
    int64_t first = 14 + header, colour = header == 12 ? 3 : 4;
    if (w->at < first || header > 124 || bits > 8) return damaged(w, "the BMP's header");
    int64_t whole = first + (header == 12 ? 12 : 0) + (colour << bits);
    w->header->palette = w->at;
    w->header->missing = whole > w->at ? whole - w->at : 0;
    return OK;
}

static Status walk_bmp(Walk *w) {
    const uint8_t *b = w->bytes;
    bool core = has(w, 26) && little(b + 14, 4) == 12;
    if (!has(w, core ? 26 : 54)) return cut_off(w);
    int64_t width = core ? little(b + 18, 2) : (int32_t)little(b + 18, 4);
    int64_t height = core ? little(b + 20, 2) : (int32_t)little(b + 22, 4);
    int64_t bits = little(b + (core ? 24 : 28), 2);
    TRY(check_size(w, height < 0 ? -height : height, width));
    int64_t row = (width * bits + 31) / 32 * 4;
    w->at = little(b + 10, 4);
    if (w->at < 26 || !has(w, row * w->header->height)) return cut_off(w);
    if (bits < 16) TRY(bmp_palette(w, core ? 12 : little(b + 14, 4), bits));
    w->at += row * w->header->height;
    return OK;
}

/* ---- PNM ---- */

static bool is_space(int c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A number after blanks and comments; -1 for none. */
static int64_t pnm_number(Walk *w) {
    int64_t value = -1;
    bool comment = false;
    for (; has(w, 1); w->at++) {
        uint8_t c = w->bytes[w->at];
        if (c == '#') comment = true;
        if (!comment && !is_space(c)) break;
        if (c == '\n') comment = false;
    }
    for (; has(w, 1) && w->bytes[w->at] >= '0' && w->bytes[w->at] <= '9' && value <= IMAGE_SIDE_LIMIT;
         w->at++)
        value = 10 * (value < 0 ? 0 : value) + w->bytes[w->at] - '0';
    return value;
}

static Status walk_pnm(Walk *w) {
    w->at = 2;
    int64_t width = pnm_number(w), height = pnm_number(w), largest = pnm_number(w);
    TRY(check_size(w, height, width));
    if (!has(w, 1)) return cut_off(w);
    if (!is_space(w->bytes[w->at++])) return damaged(w, "the PNM's header");
    if (largest != 255 && largest != 65535)
        return fail(ERROR_FORMAT, "%s: a PNM whose largest value is %lld; 255 and 65535 are read", w->name,
                    (long long)largest);
    int64_t bytes = height * width * (w->bytes[1] == '6' ? 3 : 1) * (largest > 255 ? 2 : 1);
    if (!has(w, bytes)) return cut_off(w);
    w->at += bytes;
    return OK;
}

/* ---- every format ---- */

/* After a picture there may be zeros, blanks, and after a JPEG another JPEG (as phones write it), but no
 * other file. */
static Status check_rest(const Walk *w) {
    bool jpeg = w->bytes[0] == 0xFF;
    for (int64_t i = w->at; i < w->length; i++) {
        if (jpeg && w->length - i > 2 && memcmp(w->bytes + i, "\xFF\xD8\xFF", 3) == 0) return OK;
        if (w->bytes[i] != 0 && !is_space(w->bytes[i]))
            return fail(ERROR_FORMAT,
                        "%s: after the picture, from byte %lld on, the file contains something else", w->name,
                        (long long)i);
    }
    return OK;
}

Status image_inspect(const uint8_t *bytes, int64_t length, const char *name, ImageHeader *header) {
    static const struct {
        const char *begin;
        int64_t length;
        Status (*walk)(Walk *walk);
    } formats[] = {{"\xFF\xD8\xFF", 3, walk_jpeg},
                   {"\x89PNG\r\n\x1A\n", 8, walk_png},
                   {"BM", 2, walk_bmp},
                   {"P5", 2, walk_pnm},
                   {"P6", 2, walk_pnm}};
    Walk walk = {bytes, length, 0, name, header};
    *header = (ImageHeader){0};
    if (length > IMAGE_FILE_LIMIT)
        return fail(ERROR_FORMAT, "%s: more than the %d bytes that a picture may have", name,
                    IMAGE_FILE_LIMIT);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (length < formats[i].length || memcmp(bytes, formats[i].begin, (size_t)formats[i].length) != 0)
            continue;
        TRY(formats[i].walk(&walk));
        header->end = walk.at;
        header->jpeg = formats[i].walk == walk_jpeg;
        return check_rest(&walk);
    }
    return fail(ERROR_FORMAT, "%s: not a PNG, JPEG, BMP or PNM picture", name);
}
