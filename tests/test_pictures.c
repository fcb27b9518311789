/* tasks/pictures/pictures: batches of pictures. */
#include "base/directories.h"
#include "base/memory.h"
#include "tasks/pictures/images/write.h"
#include "tasks/pictures/pictures.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <string.h>

enum { CLASSES = 2, EACH = 5, COUNT = CLASSES * EACH, SIDE = 4, BYTES = SIDE * SIDE, BATCH = 3 };

static const ImageProcessor processor = {SIDE, SIDE, 1, SIDE, SIDE, RESAMPLE_BILINEAR, {0}, {0}};
static const Augmentation some = {0.4, true, 2, 0.5};

/* Each picture has its own colour: 10, 20, ... in the upper half, and 5 more in the left half. */
static void write_pictures(const char *folder) {
    for (int i = 0; i < COUNT; i++) {
        uint8_t pixels[8 * 8];
        char path[300];
        for (int k = 0; k < 64; k++) pixels[k] = (uint8_t)(10 + 10 * i * (k < 32) + 5 * (k % 8 < 4));
        snprintf(path, sizeof path, "%s/class%d", folder, i / EACH);
        expect_ok(directory_make(path));
        snprintf(path, sizeof path, "%s/class%d/%d.png", folder, i / EACH, i);
        expect_ok(image_write(path, &(Image){pixels, 8, 8, 1}));
    }
}

static ImageSource *open_source(const char *folder) {
    ImageSource *source;
    write_pictures(folder);
    expect_ok(images_open(folder, IMAGES_TRAIN, NULL, &source));
    return source;
}

static Loader *open_loader(const LoaderOptions *options, const PictureOptions *pictures) {
    Loader *loader;
    expect_ok(loader_open_pictures(options, pictures, &loader));
    return loader;
}

typedef struct {
    uint8_t pixels[BATCH * BYTES];
    int32_t labels[BATCH];
} Kept;

static Kept next(Loader *loader) {
    Batch batch;
    Kept kept;
    expect_ok(loader_next(loader, &batch));
    memcpy(kept.pixels, batch.pictures, sizeof kept.pixels);
    memcpy(kept.labels, batch.targets, sizeof kept.labels);
    return kept;
}

static void any_workers_and_any_beginning_give_the_same(void **state) {
    enum { BATCHES = 9 };
    static Kept expected[BATCHES];
    ImageSource *source = open_source(*state);
    const PictureOptions pictures = {.source = source, .processor = processor, .augmentation = &some};
    for (int workers = 0; workers <= 3; workers++) {
        Loader *loader = open_loader(
            &(LoaderOptions){.batch = BATCH, .seq = 1, .shuffle = true, .seed = 7, .workers = workers},
            &pictures);
        assert_int_equal(loader_windows(loader), COUNT);
        for (int i = 0; i < BATCHES; i++) {
            Kept kept = next(loader);
            if (workers == 0) expected[i] = kept;
            assert_memory_equal(&kept, &expected[i], sizeof kept);
        }
        for (int i = BATCHES - 1; i >= 0; i -= 4) {
            expect_ok(loader_seek(loader, i * BATCH));
            Kept kept = next(loader);
            assert_memory_equal(&kept, &expected[i], sizeof kept);
        }
        loader_close(loader);
    }
    assert_memory_not_equal(expected[0].pixels, expected[3].pixels, BYTES); /* in another epoch */
    images_close(source);
}

static void an_epoch_has_each_picture_once(void **state) {
    ImageSource *source = open_source(*state);
    const PictureOptions pictures = {.source = source, .processor = processor};
    Loader *loader =
        open_loader(&(LoaderOptions){.batch = 1, .seq = 1, .shuffle = true, .seed = 3}, &pictures);
    int seen[COUNT] = {0}, moved = 0;
    for (int i = 0; i < COUNT; i++) {
        Batch batch;
        expect_ok(loader_next(loader, &batch));
        int picture = (batch.pictures[0] - 15) / 10;
        assert_int_equal(batch.targets[0], picture / EACH);
        assert_int_equal(batch.tokens, 1);
        seen[picture]++;
        moved += picture != i;
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    assert_true(moved > 0);
    loader_close(loader);
    images_close(source);
}

/* Training and validation on parts of one source share no picture, and both have both classes. */
static void parts_are_mixed(void **state) {
    ImageSource *source = open_source(*state);
    const PictureOptions pictures = {.source = source, .processor = processor, .mixed = true, .once = true};
    int seen[COUNT] = {0}, classes[CLASSES] = {0};
    for (int part = 0; part < 2; part++) {
        Loader *loader = open_loader(
            &(LoaderOptions){.batch = 1, .seq = 1, .first = part * 6, .length = part ? 0 : 6}, &pictures);
        assert_int_equal(loader_windows(loader), part ? 4 : 6);
        for (int64_t i = 0; i < loader_windows(loader); i++) {
            Batch batch;
            expect_ok(loader_next(loader, &batch));
            seen[(batch.pictures[0] - 15) / 10]++;
            if (part) classes[batch.targets[0]]++;
        }
        loader_close(loader);
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
    assert_true(classes[0] && classes[1]);
    images_close(source);
}

static void validation_ends_with_the_epoch(void **state) {
    ImageSource *source = open_source(*state);
    const PictureOptions pictures = {.source = source, .processor = processor, .once = true};
    Loader *loader = open_loader(&(LoaderOptions){.batch = BATCH, .seq = 1}, &pictures);
    expect_ok(loader_seek(loader, COUNT - 1));
    Kept kept = next(loader);
    assert_int_equal(kept.labels[0], CLASSES - 1);
    assert_int_equal(kept.labels[1], -1);
    assert_int_equal(kept.labels[2], -1);
    loader_close(loader);
    images_close(source);
}

static void broken_pictures(void **state) {
    ImageSource *source = open_source(*state);
    BrokenPictures *broken = broken_open(COUNT);
    const LoaderOptions options = {.batch = BATCH, .seq = 1, .workers = 1};
    PictureOptions pictures = {.source = source, .processor = processor};
    Batch batch;
    write_text_file(inside(*state, "class0/1.png"), "no picture");
    Loader *loader = open_loader(&options, &pictures);
    expect_error(loader_next(loader, &batch), ERROR_FORMAT, "class0/1.png: not a PNG");
    expect_error(loader_next(loader, &batch), ERROR_FORMAT, "class0/1.png");
    loader_close(loader);

    pictures.broken = broken;
    pictures.augmentation = &(Augmentation){.crop = 1};
    loader = open_loader(&options, &pictures);
    for (int epoch = 0; epoch < 3; epoch++) {
        expect_ok(loader_seek(loader, epoch * COUNT));
        expect_ok(loader_next(loader, &batch));
        assert_int_equal(batch.tokens, BATCH);
        assert_memory_equal(batch.pictures + BYTES, batch.pictures + 2 * BYTES, BYTES); // the next picture
    }
    assert_int_equal(broken_count(broken), 1);
    char *message = broken_message(broken, 0);
    assert_non_null(strstr(message, "class0/1.png: not a PNG"));
    memory_free(message);
    loader_close(loader);

    pictures.once = true;
    pictures.augmentation = NULL;
    loader = open_loader(&options, &pictures);
    expect_ok(loader_next(loader, &batch));
    assert_int_equal(batch.tokens, BATCH - 1);
    assert_int_equal(batch.targets[1], -1);
    loader_close(loader);

    pictures.once = false;
    for (int i = 0; i < COUNT; i++) {
        char name[40];
        snprintf(name, sizeof name, "class%d/%d.png", i / EACH, i);
        write_text_file(inside(*state, name), "no picture");
    }
    loader = open_loader(&options, &pictures);
    expect_error(loader_next(loader, &batch), ERROR_FORMAT, "skips no more");
    loader_close(loader);
    assert_int_equal(broken_count(broken), COUNT);
    broken_close(broken);
    images_close(source);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(any_workers_and_any_beginning_give_the_same),
                                       IN_FOLDER(an_epoch_has_each_picture_once), IN_FOLDER(parts_are_mixed),
                                       IN_FOLDER(validation_ends_with_the_epoch), IN_FOLDER(broken_pictures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
