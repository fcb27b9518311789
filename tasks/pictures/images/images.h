/* images: pictures with their classes, wherever they come from:
 *
 *   a folder of class folders    cats/1.jpg, dogs/2.png: the classes are the folders, sorted by name, and
 *                                each one's pictures all that lie below it (PNG, JPEG, BMP, PNM)
 *   IDX                          the files of the MNIST family, compressed or not, or the folder that holds
 *                                them: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-...
 *   CIFAR-10, CIFAR-100          the folder of the binary files: data_batch_1.bin, test_batch.bin, ...
 *
 * What a model gets of them (data/batch.h): bytes (batch, height, width, channels), interleaved, and a class
 * each. They are decoded, cropped, flipped and resized by the loader's workers (data/loader.h) into pinned
 * memory; the model's first operation normalizes them by the mean and deviation of an ImageProcessor.
 *
 * A picture may come from a stranger. Every error of one names its file. */
#pragma once

#include "base/memory.h"
#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>
#include <stdint.h>

/* Which of a source's two parts; a folder of class folders has only the first. */
typedef enum { IMAGES_TRAIN, IMAGES_TEST } ImagePart;

typedef struct ImageSource ImageSource;

/* ERROR_FILE where nothing is found, ERROR_FORMAT for files that are not whole. `cache` is a folder that
 * keeps the list of a folder's files, or NULL. */
CHECKED Status images_open(const char *path, ImagePart part, const char *cache, ImageSource **source);
/* The pictures that a path stands for, as a file, a pattern (* ? [...]) or a folder with those below it,
 * sorted by name. They have one class, which has no name. */
CHECKED Status images_open_files(const char *path, ImageSource **source);
void images_close(ImageSource *source); // NULL is fine
CLOSER(images_release, ImageSource, images_close)

/* Whether `path` holds a part for testing beside that for training. */
CHECKED Status images_have_test(const char *path, bool *have);

int64_t images_count(const ImageSource *source);
int64_t images_classes(const ImageSource *source);
const char *images_class_name(const ImageSource *source, int64_t label);
int32_t images_label(const ImageSource *source, int64_t index);

/* Of every picture; 0 where they differ, as in a folder. */
int64_t images_height(const ImageSource *source);
int64_t images_width(const ImageSource *source);
int64_t images_channels(const ImageSource *source);

/* A name for messages: a file's path, or "FILE, picture 12". The caller frees it with memory_free. */
char *images_name(const ImageSource *source, int64_t index);

/* Decodes a picture into 1 or 3 channels. Threads may read at once. */
CHECKED Status images_read(const ImageSource *source, int64_t index, int64_t channels, Image *image);

/* The mean and standard deviation of some of the source's pictures, per channel of the processor. */
CHECKED Status images_measure(const ImageSource *source, ImageProcessor *processor);
