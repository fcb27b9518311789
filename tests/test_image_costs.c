/* tasks/pictures/images: the cost of untrusted pictures. Small files with large contents, in every format:
 * memory and time are bounded by a multiple of the picture's pixels. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "tasks/pictures/images/decode.h"
#include "tests/support/expect.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

enum { SIDE = 1200, PIXELS = SIDE * SIDE };
enum { BESIDES = 4 << 20 };                   // bytes of any picture
static const double MOST_US = 1;              // of a core's time, a pixel
__attribute__((weak)) void __asan_init(void); // which keeps freed memory

typedef struct {
    uint8_t *bytes;
    int64_t length, room;
} File;

static void put(File *f, const void *bytes, int64_t length) {
    f->bytes = memory_grow(f->bytes, &f->room, f->length + length, 1);
    if (length) memcpy(f->bytes + f->length, bytes, (size_t)length);
    f->length += length;
}

static void put_big(File *f, uint32_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--) put(f, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_little(File *f, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) put(f, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

/* ---- PNG ---- */

static void put_chunk(File *f, const char *name, const void *data, int64_t length) {
    int64_t at = f->length + 4;
    put_big(f, (uint32_t)length, 4);
    put(f, name, 4);
    put(f, data, length);
    put_big(f, (uint32_t)crc32(0, f->bytes + at, (uInt)(length + 4)), 4);
}

/* Rows of zeros, each after its filter type. */
static int64_t bytes_of_rows(int64_t height, int64_t width, int bits) {
    return height && width ? height * (1 + (width * bits + 7) / 8) : 0;
}

static int64_t inflated_bytes(int64_t side, int bits, bool interlaced) {
    static const int first[7][2] = {{0, 0}, {0, 4}, {4, 0}, {0, 2}, {2, 0}, {0, 1}, {1, 0}}; // row, column
    static const int apart[7][2] = {{8, 8}, {8, 8}, {8, 4}, {4, 4}, {4, 2}, {2, 2}, {2, 1}};
    if (!interlaced) return bytes_of_rows(side, side, bits);
    int64_t bytes = 0;
    for (int p = 0; p < 7; p++)
        bytes += bytes_of_rows((side - first[p][0] + apart[p][0] - 1) / apart[p][0],
                               (side - first[p][1] + apart[p][1] - 1) / apart[p][1], bits);
    return bytes;
}

static File png(int64_t side, int depth, int colours, bool interlaced) {
    static const int channels[] = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4};
    File f = {0}, header = {0};
    uLong length = (uLong)inflated_bytes(side, depth * channels[colours], interlaced);
    uLongf packed = compressBound(length);
    OWNED uint8_t *zeros = memory_allocate(length), *data = memory_allocate(packed),
                  *palette = memory_allocate(768);
    assert_int_equal(compress2(data, &packed, zeros, length, 9), Z_OK);
    put(&f, "\x89PNG\r\n\x1A\n", 8);
    put_big(&header, (uint32_t)side, 4);
    put_big(&header, (uint32_t)side, 4);
    put(&header, (uint8_t[]){(uint8_t)depth, (uint8_t)colours, 0, 0, interlaced}, 5);
    put_chunk(&f, "IHDR", header.bytes, header.length);
    if (colours == 3) put_chunk(&f, "PLTE", palette, 768);
    put_chunk(&f, "IDAT", data, (int64_t)packed);
    put_chunk(&f, "IEND", "", 0);
    memory_free(header.bytes);
    return f;
}

/* ---- JPEG ---- */

static void put_segment(File *f, int marker, const char *data, int64_t length) {
    put_big(f, 0xFF00u | (uint32_t)marker, 2);
    put_big(f, (uint32_t)length + 2, 2);
    put(f, data, length);
}

typedef struct {
    File *file;
    uint32_t bits;
    int count;
} Bits;

static void put_bits(Bits *b, uint32_t value, int count) {
    for (int i = count - 1; i >= 0; i--) {
        b->bits = b->bits << 1 | (value >> i & 1);
        if (++b->count < 8) continue;
        put_big(b->file, b->bits, 1);
        if (b->bits == 0xFF) put_big(b->file, 0, 1);
        b->bits = 0;
        b->count = 0;
    }
}

static void flush_bits(Bits *b) {
    while (b->count) put_bits(b, 1, 1);
}

/* A Huffman table with a single code, 0, for `value`. */
static void put_table(File *f, int number, int value) {
    char table[18] = {0};
    table[0] = (char)number;
    table[1] = 1;
    table[17] = (char)value;
    put_segment(f, 0xC4, table, sizeof table);
}

/* Grey and progressive: a scan of the DC coefficients, then scans of the others that encode nothing for any
 * block. */
static File jpeg(int64_t side, int scans) {
    enum { RUN = 32767, RUN_BITS = 14, END_OF_RUN = RUN_BITS << 4 };
    File f = {0};
    Bits bits = {.file = &f};
    char quantizers[65], frame[] = {8, 0, 0, 0, 0, 1, 1, 0x11, 0};
    int64_t blocks = (side + 7) / 8 * ((side + 7) / 8);
    memset(quantizers, 1, sizeof quantizers);
    quantizers[0] = 0;
    frame[1] = frame[3] = (char)(side >> 8);
    frame[2] = frame[4] = (char)side;
    put(&f, "\xFF\xD8", 2);
    put_segment(&f, 0xDB, quantizers, sizeof quantizers);
    put_segment(&f, 0xC2, frame, sizeof frame);
    put_table(&f, 0, 0);
    put_table(&f, 0x10, END_OF_RUN);
    put_segment(&f, 0xDA, "\1\1\0\0\0\0", 6);
    for (int64_t i = 0; i < blocks; i++) put_bits(&bits, 0, 1);
    flush_bits(&bits);
    for (int i = 1; i < scans; i++) {
        put_segment(&f, 0xDA, "\1\1\0\1\x3F\0", 6);
        for (int64_t left = blocks; left > 0; left -= RUN) {
            int64_t run = left < RUN ? left : RUN;
            put_bits(&bits, 0, 1);
            put_bits(&bits, run < 1 << RUN_BITS ? 0 : (uint32_t)(run - (1 << RUN_BITS)), RUN_BITS);
        }
        flush_bits(&bits);
    }
    put(&f, "\xFF\xD9", 2);
    return f;
}

/* ---- the others ---- */

static File bmp(int64_t side, int bits) {
    File f = {0};
    int64_t row = (side * bits + 31) / 32 * 4, palette = bits <= 8 ? 4 << bits : 0;
    OWNED uint8_t *zeros = memory_allocate((size_t)(row * side + palette));
    put(&f, "BM", 2);
    put_little(&f, (uint32_t)(54 + palette + row * side), 4);
    put_little(&f, 0, 4);
    put_little(&f, (uint32_t)(54 + palette), 4);
    put_little(&f, 40, 4);
    put_little(&f, (uint32_t)side, 4);
    put_little(&f, (uint32_t)side, 4);
    put_little(&f, 1, 2);
    put_little(&f, (uint32_t)bits, 2);
    put(&f, zeros, 24);
    put(&f, zeros, palette + row * side);
    return f;
}

static File pnm(int64_t side, int kind, int largest) {
    File f = {0};
    char head[40];
    int64_t bytes = side * side * (kind == 6 ? 3 : 1) * (largest > 255 ? 2 : 1);
    OWNED uint8_t *zeros = memory_allocate((size_t)bytes);
    put(&f, head, snprintf(head, sizeof head, "P%d %d %d %d\n", kind, (int)side, (int)side, largest));
    put(&f, zeros, bytes);
    return f;
}

/* ---- costs ---- */

/* Decodes it in its own process, to measure memory and time. */
static struct rusage decode(const File *f, int64_t side) {
    struct rusage used;
    int how;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        Image image;
        Status status = image_decode(f->bytes, f->length, "x", 3, &image);
        if (status) _exit(status_exit(status, "test"));
        _exit(image.height == side && image.width == side ? 0 : 99);
    }
    assert_int_equal(wait4(child, &how, 0, &used), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    return used;
}

static double microseconds(const struct rusage *used) {
    return 1e6 * (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
           (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* Resident bytes after returning freed memory to the system: a forked process starts with these. */
static double resident(void) {
    long pages = 0;
    (void)malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void expect_cheap(const char *what, File f) {
    const double before = resident();
    const struct rusage used = decode(&f, SIDE);
    const double bytes = 1024 * (double)used.ru_maxrss - before - BESIDES;
    print_message("%-34s %8d bytes: %5.1f bytes and %5.3f us a pixel\n", what, (int)f.length, bytes / PIXELS,
                  microseconds(&used) / PIXELS);
    if (!__asan_init) assert_true(bytes <= (double)IMAGE_PIXEL_BYTES * PIXELS);
    assert_true(microseconds(&used) <= MOST_US * PIXELS);
    memory_free(f.bytes);
}

static void no_format_is_dear(void **state) {
    (void)state;
    expect_cheap("JPEG, one scan", jpeg(SIDE, 1));
    expect_cheap("JPEG, 200 scans", jpeg(SIDE, 200));
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        const char *way = interlaced ? "interlaced" : "row by row";
        static const int kinds[][2] = {{1, 0}, {8, 0}, {16, 0}, {8, 2}, {16, 2},
                                       {8, 3}, {8, 4}, {16, 4}, {8, 6}, {16, 6}};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            char what[80];
            snprintf(what, sizeof what, "PNG, %d bits, kind %d, %s", kinds[i][0], kinds[i][1], way);
            expect_cheap(what, png(SIDE, kinds[i][0], kinds[i][1], interlaced));
        }
    }
    expect_cheap("BMP, 8 bits", bmp(SIDE, 8));
    expect_cheap("BMP, 24 bits", bmp(SIDE, 24));
    expect_cheap("BMP, 32 bits", bmp(SIDE, 32));
    expect_cheap("PNM, grey, 16 bits", pnm(SIDE, 5, 65535));
    expect_cheap("PNM, colours, 8 bits", pnm(SIDE, 6, 255));
    expect_cheap("PNM, colours, 16 bits", pnm(SIDE, 6, 65535));
}

/* A larger picture may have fewer scans: all scans together cover at most 2^30 pixels. */
static void scans_are_bounded_by_pixels(void **state) {
    static const struct {
        int side, scans;
        bool read;
    } cases[] = {{64, 200, true}, {64, 201, false}, {8192, 16, true}, {8192, 17, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        File f = jpeg(cases[i].side, cases[i].scans);
        ImageHeader header;
        if (cases[i].read)
            expect_ok(image_inspect(f.bytes, f.length, "x", &header));
        else
            expect_error(image_inspect(f.bytes, f.length, "x", &header), ERROR_FORMAT, "too many scans");
        memory_free(f.bytes);
    }
}

/* A picture of 2^26 pixels would take 2 GB. */
static void deep_interlaced_pixels_count_twice(void **state) {
    (void)state;
    File f = png(8, 16, 6, true);
    ImageHeader header;
    static const struct {
        uint8_t depth, interlaced;
        bool read;
    } cases[] = {{8, 1, true}, {16, 0, true}, {16, 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(f.bytes + 16, "\0\0\x20\0\0\0\x20\0", 8); // 8192 x 8192
        f.bytes[24] = cases[i].depth;
        f.bytes[28] = cases[i].interlaced;
        uLong sum = crc32(0, f.bytes + 12, 17);
        for (int b = 0; b < 4; b++) f.bytes[29 + b] = (uint8_t)(sum >> (24 - 8 * b));
        if (cases[i].read)
            expect_ok(image_inspect(f.bytes, f.length, "x", &header));
        else
            expect_error(image_inspect(f.bytes, f.length, "x", &header), ERROR_FORMAT,
                         "too many for an interlaced");
    }
    memory_free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_format_is_dear),
                                       cmocka_unit_test(scans_are_bounded_by_pixels),
                                       cmocka_unit_test(deep_interlaced_pixels_count_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
