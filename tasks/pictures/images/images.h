/* images: pictures with their classes, from
 *
 *   a folder of class folders    cats/1.jpg, dogs/2.png: the classes are the folders, sorted by name, and a
 *                                class's pictures are all pictures below its folder (PNG, JPEG, BMP, PNM)
 *   IDX                          the files of the MNIST family, compressed or not, or the folder that holds
 *                                them: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-...
 *   CIFAR-10, CIFAR-100          the folder of the binary files: data_batch_1.bin, test_batch.bin, ...
 *
 * A model reads pictures (data/batch.h) as bytes (batch, height, width, channels), interleaved, and a class
 * for each picture. The loader's workers (data/loader.h) decode, crop, flip and resize them into pinned
 * memory; the model's first operation normalizes them by the mean and deviation of an ImageProcessor.
 *
 * Pictures are untrusted. Every error about one names its file. */
#pragma once

#include "base/memory.h"
#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>
#include <stdint.h>

/* The two parts of a source; a folder of class folders has only the first. */
typedef enum { IMAGES_TRAIN, IMAGES_TEST } ImagePart;

typedef struct ImageSource ImageSource;

/* ERROR_FILE if nothing is found, ERROR_FORMAT for incomplete files. `cache` is a folder for cached lists of
 * files, or NULL. */
CHECKED Status images_open(const char *path, ImagePart part, const char *cache, ImageSource **source);
/* The pictures of a file, a pattern (* ? [...]) or a folder, including subfolders, sorted by name. They have
 * one class, without a name. */
CHECKED Status images_open_files(const char *path, ImageSource **source);
void images_close(ImageSource *source); // accepts NULL
CLOSER(images_release, ImageSource, images_close)

/* Whether `path` has a test part in addition to the training part. */
CHECKED Status images_have_test(const char *path, bool *have);

int64_t images_count(const ImageSource *source);
int64_t images_classes(const ImageSource *source);
const char *images_class_name(const ImageSource *source, int64_t label);
int32_t images_label(const ImageSource *source, int64_t index);

/* The size of every picture; 0 if they differ, as in a folder. */
int64_t images_height(const ImageSource *source);
int64_t images_width(const ImageSource *source);
int64_t images_channels(const ImageSource *source);

/* A name for messages: a file's path, or "FILE, picture 12". The caller frees it with memory_free. */
char *images_name(const ImageSource *source, int64_t index);

/* Decodes a picture to 1 or 3 channels. Thread-safe. */
CHECKED Status images_read(const ImageSource *source, int64_t index, int64_t channels, Image *image);

/* The mean and standard deviation of some of the source's pictures, for each channel of the processor. */
CHECKED Status images_measure(const ImageSource *source, ImageProcessor *processor);
