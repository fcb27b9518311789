/* pictures time SECONDS FILE...: decodes the files over and over on one core, and prints how many pictures and
 * megapixels a second that makes.
 * pictures process HEIGHT WIDTH bilinear|bicubic OUT FILE...: writes each as (height, width, 3) bytes, one
 * behind the other, for tests/peers/pictures.py. */
#include "base/files.h"
#include "base/memory.h"
#include "data/images/transform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
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
    if (!status) return file_writer_close(writer);
    file_writer_abandon(writer);
    return status;
}

int main(int count, char **arguments) {
    Status status;
    if (count > 3 && strcmp(arguments[1], "time") == 0) {
        status = time_decoding(atof(arguments[2]), count - 3, arguments + 3);
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
        status =
            fail(ERROR_USAGE, "pictures time SECONDS FILE..., or process HEIGHT WIDTH FILTER OUT FILE...");
    }
    return status_exit(status, "pictures");
}
