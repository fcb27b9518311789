/* tasks/pictures/images/transform: what training does to pictures. */
#include "tasks/pictures/images/transform.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void augments_by_counter(void **state) {
    const ImageProcessor p = {6, 6, 1, 6, 6, RESAMPLE_BILINEAR, {0}, {0}};
    const Augmentation some = {0.3, true, 1, 0.5}, mirror = {1, true, 0, 0}, none = {1, false, 0, 0};
    uint8_t pixels[36], flipped[36], out[36], again[36];
    Image image = {pixels, 6, 6, 1};
    int mirrored = 0, same = 0;
    (void)state;
    for (int i = 0; i < 36; i++) pixels[i] = (uint8_t)(7 * i);
    for (int i = 0; i < 36; i++) flipped[i] = pixels[i / 6 * 6 + 5 - i % 6];
    image_augment(&image, &p, &none, 1, 2, out);
    assert_memory_equal(out, pixels, 36);
    for (uint64_t counter = 0; counter < 1000; counter++) {
        image_augment(&image, &p, &mirror, 9, counter, out);
        if (memcmp(out, flipped, 36) == 0)
            mirrored++;
        else
            assert_memory_equal(out, pixels, 36);
        image_augment(&image, &p, &some, 9, counter, out);
        image_augment(&image, &p, &some, 9, counter, again);
        assert_memory_equal(out, again, 36);
        image_augment(&image, &p, &some, 9, counter + 1, again);
        same += memcmp(out, again, 36) == 0;
    }
    assert_in_range(mirrored, 500 - 64, 500 + 64); // four standard deviations
    assert_in_range(same, 0, 40);
}

enum { SIDE = 6 };

/* `pixels` shifted down and to the right, filled with black. */
static void moved(const uint8_t *pixels, int down, int right, uint8_t *out) {
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int from_y = y - down, from_x = x - right;
            bool inside = from_y >= 0 && from_y < SIDE && from_x >= 0 && from_x < SIDE;
            out[y * SIDE + x] = inside ? pixels[from_y * SIDE + from_x] : 0;
        }
}

static void padding_moves_pictures(void **state) {
    enum { PAD = 2, PLACES = (2 * PAD + 1) * (2 * PAD + 1), DRAWN = 1000 };
    const ImageProcessor p = {SIDE, SIDE, 1, SIDE, SIDE, RESAMPLE_BILINEAR, {0}, {0}};
    const Augmentation pad = {.crop = 1, .pad = PAD}, far = {.crop = 1, .pad = 3 * SIDE};
    uint8_t pixels[SIDE * SIDE], out[SIDE * SIDE], wanted[SIDE * SIDE];
    int found[PLACES] = {0}, in_all = 0, black = 0;
    Image image = {pixels, SIDE, SIDE, 1};
    (void)state;
    for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = (uint8_t)(1 + 7 * i);
    for (uint64_t counter = 0; counter < DRAWN; counter++) {
        image_augment(&image, &p, &pad, 5, counter, out);
        for (int place = 0; place < PLACES; place++) {
            moved(pixels, place / (2 * PAD + 1) - PAD, place % (2 * PAD + 1) - PAD, wanted);
            found[place] += memcmp(out, wanted, sizeof out) == 0;
        }
        image_augment(&image, &p, &far, 5, counter, out);
        black += !memchr(out, 1, sizeof out) && !memchr(out, pixels[SIDE * SIDE - 1], sizeof out);
    }
    for (int place = 0; place < PLACES; place++) {
        assert_in_range(found[place], 40 - 25, 40 + 25); // four standard deviations
        in_all += found[place];
    }
    assert_int_equal(in_all, DRAWN);
    assert_in_range(black, DRAWN / 2, DRAWN); // after large shifts most pictures have lost this corner
}

/* Pixels that are no longer `value` form a rectangle filled with `mean`. */
static int erased(const uint8_t *out, uint8_t value, uint8_t mean) {
    int top = SIDE, left = SIDE, bottom = -1, right = -1, count = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        if (out[i] == value) continue;
        assert_int_equal(out[i], mean);
        int y = i / SIDE, x = i % SIDE;
        top = y < top ? y : top;
        left = x < left ? x : left;
        bottom = y > bottom ? y : bottom;
        right = x > right ? x : right;
        count++;
    }
    assert_int_equal(count, count ? (bottom - top + 1) * (right - left + 1) : 0);
    return count;
}

static void erases_rectangles(void **state) {
    const ImageProcessor p = {SIDE, SIDE, 1, SIDE, SIDE, RESAMPLE_BILINEAR, {0.2f}, {1}};
    const Augmentation some = {.crop = 1, .erase = 0.25};
    uint8_t pixels[SIDE * SIDE], out[SIDE * SIDE];
    Image image = {pixels, SIDE, SIDE, 1};
    int count = 0, least = SIDE * SIDE, most = 0;
    (void)state;
    memset(pixels, 200, sizeof pixels);
    for (uint64_t counter = 0; counter < 1000; counter++) {
        image_augment(&image, &p, &some, 5, counter, out);
        int pixels_gone = erased(out, 200, 51);
        if (!pixels_gone) continue;
        count++;
        least = pixels_gone < least ? pixels_gone : least;
        most = pixels_gone > most ? pixels_gone : most;
    }
    assert_in_range(count, 250 - 55, 250 + 55); // four standard deviations
    assert_int_equal(least, 1);
    assert_in_range(most, 12, 15); // a third of 36, with rounded sides
}

/* Finds which part of a picture of RAMP x RAMP pixels was cropped. A pixel's colour is its position; the
 * output has the rounded centres of 8 x 8 fields of the crop. */
enum { RAMP = 240, FIELDS = 8 };

typedef struct {
    double first, size; // the fields at the edges have other neighbours
} Extent;

static Extent extent_of(const uint8_t *out, int64_t channel, int64_t step) {
    double second = out[2 * step + channel], last = out[(FIELDS - 3) * step + channel];
    double field = (last - second) / (FIELDS - 5);
    return (Extent){second - 2.5 * field + 0.5, FIELDS * field};
}

/* Torchvision's RandomResizedCrop: aspect ratios from 3:4 to 4:3, and independent positions of rows and
 * columns. */
static void crops_are_drawn_freely(void **state) {
    enum { DRAWN = 1000 };
    const ImageProcessor p = {FIELDS, FIELDS, 3, FIELDS, FIELDS, RESAMPLE_BILINEAR, {0}, {0}};
    const Augmentation crop = {.crop = 0.25};
    static uint8_t pixels[RAMP * RAMP * 3], out[FIELDS * FIELDS * 3];
    double narrowest = 9, widest = 0, sums[2] = {0}, squares[2] = {0}, both = 0;
    int count = 0;
    (void)state;
    for (int y = 0; y < RAMP; y++)
        for (int x = 0; x < RAMP; x++)
            memcpy(pixels + 3 * (y * RAMP + x), (uint8_t[]){(uint8_t)x, (uint8_t)y, 0}, 3);
    for (uint64_t counter = 0; counter < DRAWN; counter++) {
        image_augment(&(Image){pixels, RAMP, RAMP, 3}, &p, &crop, 4, counter, out);
        const Extent across = extent_of(out, 0, 3), down = extent_of(out, 1, 3 * FIELDS);
        narrowest = fmin(narrowest, across.size / down.size);
        widest = fmax(widest, across.size / down.size);
        if (across.size > 0.8 * RAMP || down.size > 0.8 * RAMP)
            continue; // nearly the whole picture: few positions
        const double place[2] = {across.first / (RAMP - across.size), down.first / (RAMP - down.size)};
        for (int i = 0; i < 2; i++) sums[i] += place[i];
        for (int i = 0; i < 2; i++) squares[i] += place[i] * place[i];
        both += place[0] * place[1];
        count++;
    }
    assert_true(narrowest > 0.7 && narrowest < 0.8 && widest > 1.25 &&
                widest < 1.42); // 3/4 and 4/3, within the rounding
    assert_true(count > DRAWN / 4);
    const double n = count, spread[2] = {squares[0] / n - sums[0] / n * sums[0] / n,
                                         squares[1] / n - sums[1] / n * sums[1] / n};
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(sums[i] / n - 0.5) < 4 * sqrt(1 / (12 * n)) + 0.02);
        assert_true(fabs(spread[i] - 1.0 / 12) < 0.02);
    }
    const double correlation = (both / n - sums[0] / n * sums[1] / n) / sqrt(spread[0] * spread[1]);
    assert_true(fabs(correlation) < 4 / sqrt(n));
}

static void narrow_pictures_have_crops(void **state) {
    const ImageProcessor p = {4, 4, 1, 4, 4, RESAMPLE_BILINEAR, {0}, {0}};
    const Augmentation some = {0.9, true, 5, 1};
    uint8_t pixels[100] = {0}, out[16];
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        image_augment(&(Image){pixels, 100, 1, 1}, &p, &some, 3, i, out);
        image_augment(&(Image){pixels, 1, 100, 1}, &p, &some, 3, i, out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(augments_by_counter), cmocka_unit_test(crops_are_drawn_freely),
        cmocka_unit_test(narrow_pictures_have_crops), cmocka_unit_test(padding_moves_pictures),
        cmocka_unit_test(erases_rectangles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
