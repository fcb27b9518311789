/* tasks/pictures/images: sources of pictures. */
#include "base/directories.h"
#include "base/gzip.h"
#include "base/memory.h"
#include "tasks/pictures/images/images.h"
#include "tasks/pictures/images/write.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ImageSource *open_source(const char *path, ImagePart part, const char *cache) {
    ImageSource *source;
    expect_ok(images_open(path, part, cache, &source));
    return source;
}

static void expect_picture(const ImageSource *source, int64_t index, const char *name, const char *class) {
    char *path = images_name(source, index);
    assert_string_equal(path_name(path), name);
    assert_string_equal(images_class_name(source, images_label(source, index)), class);
    memory_free(path);
}

static void write_dot(const char *folder, const char *name) {
    char *path = path_join(folder, name);
    uint8_t pixel[] = {1, 2, 3};
    expect_ok(image_write(path, &(Image){pixel, 1, 1, 3}));
    memory_free(path);
}

static void lists_class_folders(void **state) {
    const char *root = inside(*state, "data"), *cache = inside(*state, "cache");
    ImageSource *source;
    PathList kept;
    expect_ok(directory_make(inside(*state, "data/b/deep")));
    expect_ok(directory_make(inside(*state, "data/a")));
    expect_error(images_open(root, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "no pictures");
    write_dot(root, "a/2.jpg");
    write_dot(root, "a/10.png");
    write_dot(root, "b/deep/x.jpg");
    write_dot(root, "b/y.png");
    write_text_file(inside(*state, "data/b/notes.txt"), "no picture");
    write_text_file(inside(*state, "data/list.txt"), "no picture");
    for (int again = 0; again < 2; again++) {
        source = open_source(root, IMAGES_TRAIN, cache);
        assert_int_equal(images_count(source), 4);
        assert_int_equal(images_classes(source), 2);
        expect_picture(source, 0, "10.png", "a");
        expect_picture(source, 1, "2.jpg", "a");
        expect_picture(source, 2, "y.png", "b");
        expect_picture(source, 3, "x.jpg", "b");
        images_close(source);
    }
    expect_ok(directory_list(cache, &kept));
    assert_int_equal(kept.count, 1);
    path_list_free(&kept);
    usleep(20000);              /* a folder's mtime has the resolution of the clock's ticks */
    write_dot(root, "b/z.png"); /* the cached list is outdated */
    source = open_source(root, IMAGES_TRAIN, cache);
    assert_int_equal(images_count(source), 5);
    images_close(source);
}

static void kept_lists_are_checked(void **state) {
    const char *root = inside(*state, "data"), *cache = inside(*state, "cache");
    static const char lies[][40] = {"", "x", "fusebox pictures 1", "fusebox pictures 1\0/else\0D1.0 \0Px"};
    static const size_t lengths[] = {0, 1, 18, 35};
    PathList kept;
    expect_ok(directory_make(inside(*state, "data/a")));
    write_dot(root, "a/1.png");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        images_close(open_source(root, IMAGES_TRAIN, cache));
        expect_ok(directory_list(cache, &kept));
        write_bytes(kept.paths[0], lies[i], lengths[i]);
        path_list_free(&kept);
        ImageSource *source = open_source(root, IMAGES_TRAIN, cache);
        assert_int_equal(images_count(source), 1);
        expect_picture(source, 0, "1.png", "a");
        images_close(source);
    }
}

/* Untrusted cached lists of this folder, truncated or with a picture outside any class: the first kind
 * crashed, the others were accepted. */
static void kept_lists_name_nothing_else(void **state) {
    const char *root = inside(*state, "data"), *cache = inside(*state, "cache");
    static const char *const lies[] = {"", "P1.png", "P../x.png", "D1.0 /dev"};
    char real[4096], list[8192];
    PathList kept;
    expect_ok(directory_make(inside(*state, "data/a")));
    write_dot(root, "a/1.png");
    images_close(open_source(root, IMAGES_TRAIN, cache));
    expect_ok(directory_list(cache, &kept));
    assert_non_null(realpath(root, real));
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        int length = snprintf(list, sizeof list, "fusebox pictures 1%c%s%c%s", 0, real, 0, lies[i]);
        write_bytes(kept.paths[0], list, (size_t)length + (*lies[i] != 0));
        ImageSource *source = open_source(root, IMAGES_TRAIN, cache);
        assert_int_equal(images_count(source), 1);
        expect_picture(source, 0, "1.png", "a");
        images_close(source);
    }
    FILE *file = fopen(kept.paths[0], "ab"); // appended to the list
    assert_non_null(file);
    assert_int_equal(fwrite("P..", 1, 4, file), 4);
    assert_int_equal(fclose(file), 0);
    ImageSource *source = open_source(root, IMAGES_TRAIN, cache);
    assert_int_equal(images_count(source), 1);
    images_close(source);
    path_list_free(&kept);
}

static void finds_files(void **state) {
    const char *root = inside(*state, "data");
    ImageSource *source;
    expect_ok(directory_make(inside(*state, "data/a")));
    expect_error(images_open_files(root, &source), ERROR_FILE, "no pictures");
    write_dot(root, "1.png");
    write_dot(root, "a/2.jpg");
    expect_ok(images_open_files(root, &source));
    assert_int_equal(images_count(source), 2);
    images_close(source);
    expect_ok(images_open_files(inside(*state, "data/*.png"), &source));
    assert_int_equal(images_count(source), 1);
    images_close(source);
    expect_ok(images_open_files(inside(*state, "data/a/2.jpg"), &source));
    expect_picture(source, 0, "2.jpg", "");
    images_close(source);
    expect_error(images_open_files(inside(*state, "none.jpg"), &source), ERROR_FILE, "none.jpg");
}

/* Folders 0 to 28, each with two links to the next, give 2^28 paths to the last. Another link leads back. */
static void links_are_walked_once(void **state) {
    enum { LEVELS = 28 };
    ImageSource *source;
    char path[100], target[100];
    for (int level = 0; level <= LEVELS; level++) {
        snprintf(path, sizeof path, "levels/%d", level);
        expect_ok(directory_make(inside(*state, path)));
        for (int way = 0; way < 2 && level < LEVELS; way++) {
            snprintf(path, sizeof path, "levels/%d/%c", level, "ab"[way]);
            snprintf(target, sizeof target, "../%d", level + 1);
            assert_int_equal(symlink(target, inside(*state, path)), 0);
        }
    }
    write_dot(inside(*state, "levels/28"), "deep.png");
    assert_int_equal(symlink("../0", inside(*state, "levels/28/back")), 0);
    expect_ok(images_open_files(inside(*state, "levels/0"), &source));
    assert_int_equal(images_count(source), 1);
    images_close(source);
    /* A class. */
    expect_ok(directory_make(inside(*state, "data/one")));
    assert_int_equal(symlink("../../levels/0", inside(*state, "data/one/levels")), 0);
    assert_int_equal(symlink("../one", inside(*state, "data/one/itself")), 0);
    source = open_source(inside(*state, "data"), IMAGES_TRAIN, NULL);
    assert_int_equal(images_count(source), 1);
    images_close(source);
    /* Two classes with the same pictures. */
    assert_int_equal(symlink("one", inside(*state, "data/two")), 0);
    expect_error(images_open(inside(*state, "data"), IMAGES_TRAIN, NULL, &source), ERROR_FORMAT,
                 "two: a link leads from this class");
}

enum { IDX = 3, SIDE = 4 };

/* IDX pictures and classes, with `count` in the header. */
static void write_idx(const char *folder, const char *part, const char *ending, int count, int labels) {
    uint8_t pictures[16 + IDX * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, (uint8_t)count,
                                                0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t classes[8 + IDX] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)labels, 2, 0, 1};
    char path[300];
    for (int i = 0; i < IDX * SIDE * SIDE; i++) pictures[16 + i] = (uint8_t)(5 * i);
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte%s", folder, part, ending);
    expect_ok(gzip_write(path, pictures, sizeof pictures));
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte%s", folder, part, ending);
    expect_ok(gzip_write(path, classes, sizeof classes));
}

static void reads_idx(void **state) {
    const char *folder = *state;
    bool have;
    write_idx(folder, "train", ".gz", IDX, IDX);
    expect_ok(images_have_test(folder, &have));
    assert_false(have);
    write_idx(folder, "t10k", "", IDX, IDX);
    expect_ok(images_have_test(folder, &have));
    assert_true(have);
    for (int part = IMAGES_TRAIN; part <= IMAGES_TEST; part++) {
        ImageSource *source = open_source(folder, (ImagePart)part, NULL);
        assert_int_equal(images_count(source), IDX);
        assert_int_equal(images_classes(source), 3);
        assert_int_equal(images_height(source), SIDE);
        assert_int_equal(images_channels(source), 1);
        assert_string_equal(images_class_name(source, 2), "2");
        for (int channels = 1; channels <= 3; channels += 2) {
            Image image;
            expect_ok(images_read(source, 2, channels, &image));
            assert_int_equal(image.pixels[0], (uint8_t)(5 * 2 * SIDE * SIDE));
            assert_int_equal(image.pixels[SIDE * SIDE * channels - 1], (uint8_t)(5 * (3 * SIDE * SIDE - 1)));
            image_free(&image);
        }
        images_close(source);
    }
}

static void refuses_idx_that_lies(void **state) {
    const char *folder = *state;
    ImageSource *source;
    write_idx(folder, "train", "", IDX + 1, IDX);
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "cut off");
    write_idx(folder, "train", "", IDX - 1, IDX);
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "longer than its header");
    write_idx(folder, "train", "", IDX, IDX - 1);
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "longer than its header");
    expect_error(images_open(folder, IMAGES_TEST, NULL, &source), ERROR_FILE, "no pictures for testing");
    /* A file that the system cannot read is not called damaged. */
    assert_int_equal(remove(inside(folder, "train-labels-idx1-ubyte")), 0);
    expect_ok(directory_make(inside(folder, "train-labels-idx1-ubyte")));
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FILE, "not a regular file");
    expect_ok(directory_remove(inside(folder, "train-labels-idx1-ubyte")));
    assert_int_equal(mkfifo(inside(folder, "train-labels-idx1-ubyte"), 0600), 0);
    alarm(10); // else it would wait for a writer
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FILE, "not a regular file");
    alarm(0);
    assert_int_equal(remove(inside(folder, "train-labels-idx1-ubyte")), 0);
    uint8_t many[17] = {0, 0, 8, 3, 0, 1, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0}; // 2^36 pixels
    write_bytes(inside(folder, "train-images-idx3-ubyte"), many, sizeof many);
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "claims more than a file");
    write_idx(folder, "train", "", IDX, IDX);
    write_idx(folder, "train", ".gz", IDX, IDX);
    expect_error(images_open(folder, IMAGES_TRAIN, NULL, &source), ERROR_USAGE, "name one");
}

static void reads_cifar(void **state) {
    enum { PIXELS = 3072, RECORDS = 2 };
    static uint8_t records[RECORDS * (PIXELS + 1)];
    ImageSource *source;
    Image image;
    for (int i = 0; i < RECORDS; i++) records[i * (PIXELS + 1)] = (uint8_t)(3 + i);
    records[1] = 10;        /* red of the first pixel */
    records[1 + 1024] = 20; /* green */
    records[1 + 2048] = 30;
    write_bytes(inside(*state, "data_batch_1.bin"), records, sizeof records);
    write_bytes(inside(*state, "data_batch_2.bin"), records, sizeof records);
    write_text_file(inside(*state, "batches.meta.txt"),
                    "airplane\nautomobile\nbird\ncat\n\ncat\ncat (2)\n\033[2J\n");
    source = open_source(*state, IMAGES_TRAIN, NULL);
    assert_int_equal(images_count(source), 2 * RECORDS);
    assert_int_equal(images_classes(source), 10);
    assert_string_equal(images_class_name(source, images_label(source, 2)), "cat");
    assert_string_equal(images_class_name(source, 4), "cat (2)");
    assert_string_equal(images_class_name(source, 5), "cat (2) (2)");
    assert_string_equal(images_class_name(source, 6), "?[2J");
    expect_ok(images_read(source, 0, 3, &image));
    assert_memory_equal(image.pixels, ((uint8_t[]){10, 20, 30, 0}), 4);
    image_free(&image);
    images_close(source);
    records[0] = 10;
    write_bytes(inside(*state, "data_batch_2.bin"), records, sizeof records);
    expect_error(images_open(*state, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "class 10, of 10");
    write_bytes(inside(*state, "data_batch_2.bin"), records, sizeof records - 1);
    expect_error(images_open(*state, IMAGES_TRAIN, NULL, &source), ERROR_FORMAT, "whole CIFAR records");
}

static void measures_pictures(void **state) {
    ImageProcessor p = {.channels = 1};
    double sum = 0, squares = 0, count = IDX * SIDE * SIDE;
    write_idx(*state, "train", "", IDX, IDX);
    ImageSource *source = open_source(*state, IMAGES_TRAIN, NULL);
    for (int i = 0; i < IDX * SIDE * SIDE; i++) {
        double value = (uint8_t)(5 * i) / 255.0;
        sum += value;
        squares += value * value;
    }
    expect_ok(images_measure(source, &p));
    assert_float_equal(p.mean[0], sum / count, 5e-5); /* to four digits */
    assert_float_equal(p.deviation[0], sqrt(squares / count - sum / count * (sum / count)), 5e-5);
    images_close(source);
}

/* Debian's dataset-fashion-mnist, where it is installed. */
static void reads_fashion_mnist(void **state) {
    const char *path = "/usr/share/datasets/fashion-mnist";
    PathKind kind;
    (void)state;
    expect_ok(path_kind(path, &kind));
    if (kind != PATH_FOLDER) skip();
    for (int part = IMAGES_TRAIN; part <= IMAGES_TEST; part++) {
        ImageProcessor p = {.channels = 1};
        ImageSource *source = open_source(path, (ImagePart)part, NULL);
        assert_int_equal(images_count(source), part == IMAGES_TRAIN ? 60000 : 10000);
        assert_int_equal(images_classes(source), 10);
        expect_ok(images_measure(source, &p));
        assert_float_equal(p.mean[0], 0.286, 0.01); /* as published: 0.2860 and 0.3530 */
        assert_float_equal(p.deviation[0], 0.353, 0.01);
        images_close(source);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(lists_class_folders),
                                       IN_FOLDER(kept_lists_are_checked),
                                       IN_FOLDER(kept_lists_name_nothing_else),
                                       IN_FOLDER(finds_files),
                                       IN_FOLDER(links_are_walked_once),
                                       IN_FOLDER(reads_idx),
                                       IN_FOLDER(refuses_idx_that_lies),
                                       IN_FOLDER(reads_cifar),
                                       IN_FOLDER(measures_pictures),
                                       cmocka_unit_test(reads_fashion_mnist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
