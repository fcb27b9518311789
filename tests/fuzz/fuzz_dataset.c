/* Fuzzes files of many pictures, and cached lists. The first byte selects the kind: CIFAR-10, CIFAR-100, IDX
 * files of the MNIST family, or the cached list of a folder. Then follow two bytes, the length of the file of
 * classes; that file; and the pictures. Accepted data must have a class and all pixels for each picture. */
#include "base/files.h"
#include "base/memory.h"
#include "tasks/pictures/images/images.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

enum { TEN, HUNDRED, IDX, KINDS };

static void read_all(const char *path, ImagePart part) {
    ImageSource *source;
    Status status = images_open(path, part, NULL, &source);
    must(!status == (source != NULL));
    for (int64_t i = 0; !status && i < images_count(source); i++) {
        Image image, grey;
        int32_t label = images_label(source, i);
        must(label >= 0 && label < images_classes(source) && images_class_name(source, label));
        must(!images_read(source, i, IMAGE_CHANNELS, &image));
        must(image.height == images_height(source) && image.width == images_width(source));
        volatile uint8_t last = image.pixels[image.height * image.width * IMAGE_CHANNELS - 1];
        (void)last;
        image_free(&image);
        must(images_channels(source) > 0 && !images_read(source, i, 1, &grey));
        image_free(&grey);
        memory_free(images_name(source, i));
    }
    images_close(source);
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_FILE);
    status_free(status);
}

static void read_dataset(const uint8_t *data, size_t size) {
    static const char *const names[] = {"data_batch_1.bin", "train.bin", "a-images-idx3-ubyte"},
                             *const classes[] = {"batches.meta.txt", "fine_label_names.txt",
                                                 "a-labels-idx1-ubyte"};
    if (size < 3) return;
    int kind = data[0] % KINDS;
    size_t labels = (size_t)data[1] << 8 | data[2];
    if (labels > size - 3) labels = 0;
    scratch_put(classes[kind], data + 3, labels);
    scratch_put(names[kind], data + 3 + labels, size - 3 - labels);
    bool test;
    must(!images_have_test(SCRATCH, &test) && !test);
    read_all(SCRATCH, IMAGES_TRAIN);
    read_all(SCRATCH, IMAGES_TEST);
    char *path = path_join(SCRATCH, size % 2 ? names[kind] : classes[kind]);
    read_all(path, IMAGES_TRAIN);
    memory_free(path);
}

FUZZ(dataset, read_dataset, NULL)
