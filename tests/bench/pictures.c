/* Three programs:
 *     pictures time SECONDS FILE...    decodes the files repeatedly on one core; prints pictures/s and
 *                                      megapixels/s
 *     pictures make FOLDER CLASSES COUNT WIDTH HEIGHT
 *                                      draws COUNT JPEG files for each class, FOLDER/CLASS/N.jpg
 *     pictures process HEIGHT WIDTH bilinear|bicubic OUT FILE...
 *                                      writes each as (height, width, 3) bytes, concatenated, for
 *                                      tests/peers/pictures.py */
#include "base/directories.h"
#include "base/memory.h"
#include "base/random.h"
#include "tasks/pictures/images/resample.h"
#include "tasks/pictures/images/transform.h"
#include "tasks/pictures/images/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* CPU time of this thread, unaffected by other programs. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status time_decoding(double limit, int count, char **paths) {
    double start = seconds(), elapsed = 0, pixels = 0;
    int64_t pictures = 0;
    while (elapsed < limit) {
        Image image;
        TRY(image_read_file(paths[pictures++ % count], IMAGE_CHANNELS, &image));
        pixels += (double)(image.height * image.width);
        image_free(&image);
        elapsed = seconds() - start;
    }
    printf("%.2f pictures/s, %.1f megapixels/s\n", (double)pictures / elapsed, 1e-6 * pixels / elapsed);
    return OK;
}

static Status process(const ImageProcessor *processor, const char *out, int count, char **paths) {
    int64_t bytes = processor->height * processor->width * processor->channels;
    uint8_t *pixels = memory_allocate((size_t)bytes);
    FileWriter *writer = NULL;
    Status status = file_writer_open(out, &writer);
    for (int i = 0; i < count && !status; i++) {
        Image image;
        status = image_read_file(paths[i], processor->channels, &image);
        if (status) break;
        image_process(&image, processor, pixels);
        image_free(&image);
        status = file_writer_append(writer, pixels, bytes);
    }
    memory_free(pixels);
    return file_writer_finish(writer, status);
}

enum { TEXTURE = 24, GRAIN = 16 };

/* Mixes a texture of the class, a texture of the picture, and grain, so that the files are as large as a
 * camera's. */
static Status draw(const char *folder, int64_t label, int64_t number, int64_t width, int64_t height) {
    uint8_t texture[TEXTURE * TEXTURE * IMAGE_CHANNELS];
    int64_t bytes = width * height * IMAGE_CHANNELS;
    Image small = {texture, TEXTURE, TEXTURE, IMAGE_CHANNELS};
    Image image = {memory_allocate((size_t)bytes), height, width, IMAGE_CHANNELS};
    const Cut cut = {.height = TEXTURE, .width = TEXTURE, .scaled_height = height, .scaled_width = width};
    for (uint64_t i = 0; i < sizeof texture; i++)
        texture[i] = (uint8_t)(16 + random_below((uint64_t)label, 1, i, 160) +
                               random_below((uint64_t)number, 2 + (uint64_t)label, i, 64));
    image_resample(&small, &cut, RESAMPLE_BICUBIC, height, width, image.pixels);
    uint32_t noise = (uint32_t)(number * 977 + label);
    for (int64_t i = 0; i < bytes; i++) {
        noise = noise * 1664525 + 1013904223;
        image.pixels[i] = (uint8_t)(image.pixels[i] + (noise >> 24) % GRAIN);
    }
    char name[40];
    snprintf(name, sizeof name, "class%lld/%lld.jpg", (long long)label, (long long)number);
    char *path = path_join(folder, name);
    Status status = image_write(path, &image);
    memory_free(path);
    memory_free(image.pixels);
    return status;
}

static Status make(const char *folder, int64_t classes, int64_t count, int64_t width, int64_t height) {
    Status first = OK;
    for (int64_t label = 0; label < classes; label++) {
        char name[40];
        snprintf(name, sizeof name, "class%lld", (long long)label);
        char *path = path_join(folder, name);
        Status status = directory_make(path);
        memory_free(path);
        TRY(status);
    }
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < classes * count; i++) {
        Status status = draw(folder, i / count, i % count, width, height);
#pragma omp critical
        {
            if (first)
                status_free(status);
            else
                first = status;
        }
    }
    return first;
}

int main(int count, char **arguments) {
    Status status;
    if (count > 3 && strcmp(arguments[1], "time") == 0) {
        status = time_decoding(atof(arguments[2]), count - 3, arguments + 3);
    } else if (count == 7 && strcmp(arguments[1], "make") == 0) {
        status = make(arguments[2], atoll(arguments[3]), atoll(arguments[4]), atoll(arguments[5]),
                      atoll(arguments[6]));
    } else if (count > 6 && strcmp(arguments[1], "process") == 0) {
        int height = atoi(arguments[2]), width = atoi(arguments[3]);
        bool cubic = strcmp(arguments[4], "bicubic") == 0;
        status = process(&(ImageProcessor){.height = height,
                                           .width = width,
                                           .scaled_height = height,
                                           .scaled_width = width,
                                           .channels = IMAGE_CHANNELS,
                                           .resample = cubic ? RESAMPLE_BICUBIC : RESAMPLE_BILINEAR},
                         arguments[5], count - 6, arguments + 6);
    } else {
        status = fail(ERROR_USAGE, "pictures time|make|process: see tests/bench/pictures.c");
    }
    return status_exit(status, "pictures");
}
