/* Files of many pictures from bytes. The first byte says of which kind: CIFAR-10, CIFAR-100, or the IDX
 * files of the MNIST family. Then come two bytes, of IDX the length of the file of classes that follows, and
 * then the pictures. What opens has a class and all pixels for each picture. */
#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/images/images.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEN, HUNDRED, IDX, KINDS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/dev/shm/fuzz-XXXXXX";

static void must(bool holds) {
    if (!holds) abort();
}

static void leave(void) {
    status_free(directory_remove(folder));
}

static char *write_file(const char *name, const uint8_t *data, size_t size) {
    char *path = path_join(folder, name);
    FILE *file = fopen(path, "wb");
    must(file && fwrite(data, 1, size, file) == size);
    must(fclose(file) == 0);
    return path;
}

static void read_all(const char *path) {
    ImageSource *source;
    Status status = images_open(path, IMAGES_TRAIN, NULL, &source);
    must(!status == (source != NULL));
    for (int64_t i = 0; !status && i < images_count(source); i++) {
        Image image;
        int32_t label = images_label(source, i);
        must(label >= 0 && label < images_classes(source) && images_class_name(source, label));
        must(!images_read(source, i, IMAGE_CHANNELS, &image));
        volatile uint8_t last = image.pixels[image.height * image.width * IMAGE_CHANNELS - 1];
        (void)last;
        image_free(&image);
    }
    images_close(source);
    status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    if (!made) must(mkdtemp(folder) && atexit(leave) == 0);
    made = true;
    if (size < 3) return 0;
    int kind = data[0] % KINDS;
    size_t labels = (size_t)data[1] << 8 | data[2];
    if (kind != IDX || labels > size - 3) labels = 0;
    memory_free(write_file("a-labels-idx1-ubyte", data + 3, labels));
    static const char *const names[] = {"data_batch_1.bin", "train.bin", "a-images-idx3-ubyte"};
    char *path = write_file(names[kind], data + 3 + labels, size - 3 - labels);
    read_all(path);
    memory_free(path);
    return 0;
}
