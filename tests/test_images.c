/* tasks/pictures/images: decoding and scaling against Pillow and transformers (make_images.py). */
#define _GNU_SOURCE
#include "base/files.h"
#include "base/memory.h"
#include "tasks/pictures/images/images.h"
#include "tasks/pictures/images/transform.h"
#include "tasks/pictures/images/write.h"
#include "data/safetensors.h"
#include "tests/support/expect.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define FOLDER "tests/fixtures/images"

static ImageSource *open_source(const char *path, ImagePart part, const char *cache) {
    ImageSource *source;
    expect_ok(images_open(path, part, cache, &source));
    return source;
}

/* ---- decoding and scaling ---- */

/* The largest difference between bytes and those of the fixture's tensor, of the same number. */
static int difference(const Safetensors *file, const char *name, const uint8_t *bytes, int64_t count) {
    const SafetensorsEntry *entry = safetensors_find(file, name);
    int most = 0;
    assert_non_null(entry);
    assert_int_equal(entry->bytes, count);
    for (int64_t i = 0; i < count; i++) {
        int apart = abs((int)bytes[i] - (int)((const uint8_t *)entry->data)[i]);
        if (apart > most) most = apart;
    }
    return most;
}

static void compare_processed(const Safetensors *file, const char *name, const Image *image) {
    static const ImageProcessor processors[] = {{12, 10, 3, 12, 10, RESAMPLE_BILINEAR, {0}, {0}},
                                                {12, 10, 3, 12, 10, RESAMPLE_BICUBIC, {0}, {0}},
                                                {12, 10, 3, 12, 0, RESAMPLE_BILINEAR, {0}, {0}}};
    static const char *const kinds[] = {"bilinear", "bicubic", "cropped"};
    uint8_t out[12 * 10 * 3];
    for (int i = 0; i < 3; i++) {
        char key[100];
        snprintf(key, sizeof key, "%s.%s", name, kinds[i]);
        if (!safetensors_find(file, key)) continue;
        image_process(image, &processors[i], out);
        assert_in_range(difference(file, key, out, sizeof out), 0, 1);
    }
}

/* Colours are exact, grey is within the rounding of its weights; but a JPEG's grey is the file's own, while
 * Pillow recomputes it from colours clipped to 0 and 255. */
static void compare_picture(const Safetensors *file, const char *path, const char *name) {
    bool jpeg = strstr(name, ".jp");
    char key[100];
    Image image;
    expect_ok(image_read_file(path, 3, &image));
    snprintf(key, sizeof key, "%s.rgb", name);
    assert_in_range(difference(file, key, image.pixels, image.height * image.width * 3), 0, 0);
    compare_processed(file, name, &image);
    image_free(&image);
    if (jpeg) return;
    expect_ok(image_read_file(path, 1, &image));
    snprintf(key, sizeof key, "%s.grey", name);
    assert_in_range(difference(file, key, image.pixels, image.height * image.width), 0, 1);
    image_free(&image);
}

static void as_pillow_and_transformers(void **state) {
    Safetensors *file;
    ImageSource *source = open_source(FOLDER "/classes", IMAGES_TRAIN, NULL);
    (void)state;
    expect_ok(safetensors_open(FOLDER "/values.safetensors", &file));
    assert_int_equal(images_count(source), 18);
    for (int64_t i = 0; i < images_count(source); i++) {
        char *path = images_name(source, i);
        compare_picture(file, path, path_name(path));
        memory_free(path);
    }
    safetensors_close(file);
    images_close(source);
}

/* Pillow's convert("L") of the same colours, in every format: ITU-R BT.601 in 16 bits, rounded. */
static void grey_is_pillows(void **state) {
    ImageSource *source = open_source(FOLDER "/classes", IMAGES_TRAIN, NULL);
    (void)state;
    for (int64_t i = 0; i < images_count(source); i++) {
        Image grey, colours;
        expect_ok(images_read(source, i, 1, &grey));
        expect_ok(images_read(source, i, 3, &colours));
        assert_int_equal(grey.channels, 1);
        for (int64_t k = 0; k < grey.height * grey.width; k++) {
            const uint8_t *rgb = colours.pixels + 3 * k;
            assert_int_equal(grey.pixels[k],
                             (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) / 65536);
        }
        image_free(&grey);
        image_free(&colours);
    }
    images_close(source);
}

/* 8 x 8 pixels of four inks, with Adobe's marker and without: Pillow takes both for light. */
static void inks_are_pillows(void **state) {
    static const char *const names[] = {FOLDER "/inks/adobe.jpg", FOLDER "/inks/plain.jpg"};
    static const uint8_t colours[] = {190, 146, 49};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Image image;
        expect_ok(image_read_file(names[i], 3, &image));
        for (int64_t k = 0; k < 64; k++) assert_memory_equal(image.pixels + 3 * k, colours, 3);
        image_free(&image);
        expect_ok(image_read_file(names[i], 1, &image));
        for (int64_t k = 0; k < 64; k++) assert_int_equal(image.pixels[k], image_grey(colours));
        image_free(&image);
    }
}

/* The order of the axes is Pillow 13's, with its values: other orders differ by up to 11 and 14. */
static void axes_are_scaled_in_pillows_order(void **state) {
    static const struct {
        int height, width, to_height, to_width;
        uint8_t pixels[48];
    } all[] = {
        {13, 6, 4, 4, {24, 190, 197, 43, 250, 113, 67, 121, 35, 102, 163, 205, 140, 191, 137, 0}},
        {12, 8, 4, 4, {117, 138, 138, 117, 127, 127, 127, 127, 127, 127, 127, 127, 138, 117, 117, 138}},
        {9, 9, 12, 4, {36, 255, 160, 93,  68,  82,  187, 55, 171, 47, 159, 82, 239, 196, 82,  175,
                       13, 180, 70,  215, 128, 106, 137, 55, 213, 67, 194, 80, 152, 98,  171, 255,
                       54, 184, 4,   120, 61,  188, 170, 45, 141, 99, 212, 81, 223, 0,   85,  171}},
        {9, 9, 4, 12, {162, 77,  72,  157, 153, 102, 129, 211, 174, 82,  58,  102, 157, 155, 113, 72,
                       164, 179, 131, 69,  90,  169, 166, 94,  55,  120, 178, 176, 98,  73,  122, 187,
                       117, 92,  134, 200, 214, 138, 62,  55,  157, 131, 96,  113, 209, 147, 72,  44}}};
    (void)state;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        uint8_t pixels[13 * 9], out[48];
        int height = all[k].to_height, width = all[k].to_width;
        for (int i = 0; i < all[k].height * all[k].width; i++)
            pixels[i] = ((i * i * 7 + i * 31) >> 3) % 2 ? 255 : 0;
        const ImageProcessor p = {height, width, 1, height, width, RESAMPLE_BICUBIC, {0}, {0}};
        image_process(&(Image){pixels, all[k].height, all[k].width, 1}, &p, out);
        for (int i = 0; i < height * width; i++)
            assert_in_range(abs(out[i] - all[k].pixels[i]), 0, 1); // Pillow's weights are of 22 bits
    }
}

static void refuses_damaged_files(void **state) {
    static const struct {
        const char *name, *why;
    } files[] = {
        {"cut.png", "cut off"},     {"cut.jpg", "cut off"},       {"cut.bmp", "cut off"},
        {"cut.ppm", "cut off"},     {"checksum.png", "checksum"}, {"zip.jpg", "after the picture"},
        {"huge.png", "too many"},   {"huge.jpg", "too many"},     {"table.jpg", "Bogus Huffman table"},
        {"empty.png", "not a PNG"}, {"text.jpg", "not a PNG"}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[200];
        Image image;
        snprintf(path, sizeof path, FOLDER "/damaged/%s", files[i].name);
        expect_error(image_read_file(path, 3, &image), ERROR_FORMAT, files[i].why);
        expect_error(image_read_file(path, 3, &image), ERROR_FORMAT, files[i].name);
        assert_null(image.pixels);
    }
}

/* A file truncated anywhere is an error. */
static void refuses_every_beginning(void **state) {
    static const char *const names[] = {"first/plain.jpg", "first/colours.png", "second/colours.bmp",
                                        "first/colours.ppm", "first/progressive.jpeg"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200], *bytes;
        int64_t length;
        Image image;
        snprintf(path, sizeof path, FOLDER "/classes/%s", names[i]);
        expect_ok(file_read(path, 1 << 20, &bytes, &length));
        for (int64_t cut = 0; cut < length; cut += 1 + length / 200) {
            char *beginning = memory_text_slice(
                bytes, (size_t)cut); // exact size, so that a sanitizer detects reads beyond it
            expect_error(image_decode((uint8_t *)beginning, cut, "x.jpg", 3, &image), ERROR_FORMAT, "x.jpg");
            memory_free(beginning);
        }
        memory_free(bytes);
    }
}

/* 3 x 1 pixels with the palette indices 0, 1 (or 200), 0. A colour missing from the palette is black, as in
 * Pillow, not uninitialized memory. The third file has a header of 12 bytes and a full palette. */
static void every_colour_has_a_value(void **state) {
    static const char png[] =
        "\x89\x50\x4E\x47\x0D\x0A\x1A\x0A\x00\x00\x00\x0D\x49\x48\x44\x52\x00\x00\x00\x03"
        "\x00\x00\x00\x01\x01\x03\x00\x00\x00\x21\x2E\x86\xF7\x00\x00\x00\x03\x50\x4C\x54"
        "\x45\x0A\x14\x1E\x7E\x4C\x52\x3A\x00\x00\x00\x0A\x49\x44\x41\x54\x78\xDA\x63\x70"
        "\x00\x00\x00\x42\x00\x41\x84\xBF\x8E\x62\x00\x00\x00\x00\x49\x45\x4E\x44\xAE\x42"
        "\x60\x82",
                      bmp[] =
                          "\x42\x4D\x3E\x00\x00\x00\x00\x00\x00\x00\x3A\x00\x00\x00\x28\x00\x00\x00\x03\x00"
                          "\x00\x00\x01\x00\x00\x00\x01\x00\x08\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00"
                          "\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x1E\x14\x0A\x00\x00\xC8"
                          "\x00\x00",
                      core[] =
                          "\x42\x4D\x24\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00\x0C\x00\x00\x00\x03\x00"
                          "\x01\x00\x01\x00\x01\x00\x1E\x14\x0A\x21\x16\x0B\x40\x00\x00\x00";
    const struct {
        const char *bytes;
        int64_t length;
        uint8_t middle[3];
    } files[] = {
        {png, sizeof png - 1, {0}}, {bmp, sizeof bmp - 1, {0}}, {core, sizeof core - 1, {11, 22, 33}}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Image image;
        expect_ok(image_decode((const uint8_t *)files[i].bytes, files[i].length, "x", 3, &image));
        assert_int_equal(image.width, 3);
        assert_memory_equal(image.pixels, "\x0A\x14\x1E", 3);
        assert_memory_equal(image.pixels + 3, files[i].middle, 3);
        assert_memory_equal(image.pixels + 6, "\x0A\x14\x1E", 3);
        image_free(&image);
    }
}

/* Bytes allocated by malloc, in small and large blocks. */
static size_t allocated(void) {
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* Damages parts that the inspection does not read: a JPEG's codes, a BMP's compression type, a PNG's
 * compressed bytes with a matching checksum. */
static void spoil(uint8_t *bytes, int64_t length) {
    if (*bytes == 0xFF) {
        for (int64_t at = length / 2; at < length / 2 + 16; at += 2) memcpy(bytes + at, "\xFF", 2);
    } else if (*bytes == 'B') {
        bytes[30] = 1;
    } else {
        uint8_t *data = memmem(bytes, (size_t)length, "IDAT", 4);
        uint32_t size = (uint32_t)data[-2] << 8 | data[-1];
        memset(data + 6, 0xFF, 8);
        uLong sum = crc32(0, data, size + 4);
        for (int i = 0; i < 4; i++) data[4 + size + (uint32_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    }
}

/* Complete files that the decoder refuses after it has allocated pixels or the palette. */
static void refused_pictures_leave_no_memory(void **state) {
    enum { TIMES = 100 };
    static const char *const names[] = {"plain.jpg", "palette.png", "palette.bmp"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200], *bytes;
        int64_t length;
        Image image;
        size_t before = 0;
        snprintf(path, sizeof path, FOLDER "/classes/first/%s", names[i]);
        expect_ok(file_read(path, 1 << 20, &bytes, &length));
        spoil((uint8_t *)bytes, length);
        for (int time = 0; time <= TIMES; time++) {
            expect_error(image_decode((uint8_t *)bytes, length, "x", 3, &image), ERROR_FORMAT, "x: damaged");
            assert_null(image.pixels);
            if (time == 0) before = allocated(); // allocated once
        }
        assert_true(allocated() < before + TIMES * 64); // bytes: the smallest picture has more
        memory_free(bytes);
    }
}

static void a_telephones_second_picture_is_skipped(void **state) {
    char *bytes;
    int64_t length;
    Image image;
    (void)state;
    expect_ok(file_read(FOLDER "/classes/first/plain.jpg", 1 << 20, &bytes, &length));
    bytes = memory_resize(bytes, (size_t)(2 * length));
    memcpy(bytes + length, bytes, (size_t)length);
    expect_ok(image_decode((uint8_t *)bytes, 2 * length, "two.jpg", 3, &image));
    image_free(&image);
    memory_free(bytes);
}

/* ---- files ---- */

static void writes_pictures(void **state) {
    uint8_t pixels[5 * 7 * 3];
    Image image = {pixels, 5, 7, 3}, back;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(100 + i);
    expect_ok(image_write(inside(*state, "out.png"), &image));
    expect_ok(image_read_file(inside(*state, "out.png"), 3, &back));
    assert_memory_equal(back.pixels, pixels, sizeof pixels);
    image_free(&back);
    expect_ok(image_write(inside(*state, "out.jpg"), &image));
    expect_ok(image_read_file(inside(*state, "out.jpg"), 3, &back));
    assert_int_equal(back.width, 7);
    image_free(&back);
    expect_error(image_write(inside(*state, "out.gif"), &image), ERROR_USAGE, "out.gif");
    assert_false(path_exists(inside(*state, "out.gif")));
}

static void processors_come_back(void **state) {
    static const ImageProcessor all[] = {
        {28, 28, 1, 28, 28, RESAMPLE_BILINEAR, {0.286f}, {0.353f}},
        {224, 224, 3, 256, 0, RESAMPLE_BICUBIC, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
        {224, 192, 3, 256, 256, RESAMPLE_BILINEAR, {0, 0.1f, 0}, {1, 1e-7f, 1}}};
    bool found;
    ImageProcessor back;
    expect_ok(processor_read(*state, &back, &found));
    assert_false(found);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        back = (ImageProcessor){0};
        expect_ok(processor_write(*state, &all[i]));
        expect_ok(processor_read(*state, &back, &found));
        assert_true(found);
        for (int64_t c = all[i].channels; c < 3; c++) back.mean[c] = back.deviation[c] = 0; /* defaults */
        assert_memory_equal(&back, &all[i], sizeof back);
    }
}

static void reads_processors_of_all_kinds(void **state) {
    const char *path = inside(*state, "preprocessor_config.json");
    bool found;
    ImageProcessor p;
    write_text_file(
        path, "{\"size\": 384, \"do_rescale\": false, \"image_mean\": 127.5, \"image_std\": [51,51,51]}");
    expect_ok(processor_read(*state, &p, &found));
    assert_int_equal(p.scaled_width, 384);
    assert_float_equal(p.mean[2], 0.5, 1e-7);
    assert_float_equal(p.deviation[0], 0.2, 1e-7);
    write_text_file(path, "{\"do_normalize\": false, \"rescale_factor\": 0.0078431372549, \"size\": null}");
    expect_ok(processor_read(*state, &p, &found));
    assert_int_equal(p.height, 224);
    assert_float_equal(p.mean[0], 0, 0);
    assert_float_equal(p.deviation[0], 0.5, 1e-7);
    write_text_file(path,
                    "{\"do_pad\": false, \"pad_size\": 9, \"crop_pct\": null, \"do_convert_rgb\": true, "
                    "\"size\": {\"height\": 6, \"width\": 5}, \"default_to_square\": false}");
    expect_ok(processor_read(*state, &p, &found));
    assert_int_equal(p.width, 5);
    static const char *const lies[][2] = {
        {"{\"size\": {\"height\": 5}}", "\"size\""},
        {"{\"resample\": 0}", "resample"},
        {"{\"image_std\": [1, 0, 1]}", "out of range"},
        {"{\"image_std\": [1, 1e-45, 1]}", "out of range"}, // a pixel would become infinite
        {"{\"image_mean\": [1, 2]}", "image_mean"},
        {"{\"do_resize\": false}", "not resized"},
        {"{\"size\": 20, \"do_center_crop\": true, \"crop_size\": 21}", "larger"},
        {"{\"size\": 20, \"do_center_crop\": true, \"crop_size\": {\"shortest_edge\": 5}}",
         "a height and a width"},
        {"{\"crop_pct\": 0.875}", "\"crop_pct\" is not supported"},
        {"{\"do_pad\": true, \"pad_size\": {\"height\": 230, \"width\": 230}}",
         "\"do_pad\" is not supported"},
        {"{\"rescale_offset\": true}", "\"rescale_offset\" is not supported"},
        {"{\"do_flip_channel_order\": true}", "\"do_flip_channel_order\" is not supported"},
        {"{\"size\": {\"shortest_edge\": 224}}", "\"shortest_edge\" without \"do_center_crop\""},
        {"{\"size\": {\"shortest_edge\": 5, \"longest_edge\": 9}, \"do_center_crop\": true}",
         "\"longest_edge\" is not supported"},
        {"{\"size\": 20, \"default_to_square\": false}", "\"default_to_square\" is not supported"},
        {"[]", "not a JSON object"},
        {"[", "not valid JSON"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        write_text_file(path, lies[i][0]);
        found = false;
        expect_error(processor_read(*state, &p, &found), ERROR_FORMAT, lies[i][1]);
        assert_true(found);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_pillow_and_transformers),
                                       cmocka_unit_test(grey_is_pillows),
                                       cmocka_unit_test(inks_are_pillows),
                                       cmocka_unit_test(axes_are_scaled_in_pillows_order),
                                       cmocka_unit_test(refuses_damaged_files),
                                       cmocka_unit_test(refuses_every_beginning),
                                       cmocka_unit_test(refused_pictures_leave_no_memory),
                                       cmocka_unit_test(a_telephones_second_picture_is_skipped),
                                       cmocka_unit_test(every_colour_has_a_value),
                                       IN_FOLDER(writes_pictures),
                                       IN_FOLDER(processors_come_back),
                                       IN_FOLDER(reads_processors_of_all_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
