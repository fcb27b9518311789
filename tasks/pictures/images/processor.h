/* processor: how a picture becomes what a model takes: its size, and the mean and standard deviation that the
 * model's first operation normalizes by. In folders of transformers this is preprocessor_config.json. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { IMAGE_CHANNELS = 3 }; // at most: 1 is grey, 3 are red, green and blue

/* As Pillow's filters; each is widened when it shrinks a picture. */
typedef enum { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC } Resample;

typedef struct {
    int64_t height, width, channels;     // of the model's pictures: the middle of
    int64_t scaled_height, scaled_width; // what a picture is scaled to; width 0: its shorter side to height
    Resample resample;
    float mean[IMAGE_CHANNELS];      // of values from 0 to 1, which become
    float deviation[IMAGE_CHANNELS]; // (value - mean) / deviation
} ImageProcessor;

/* Fills what the folder's preprocessor_config.json says, and leaves the rest of `processor` as it is. `found`
 * tells whether there is one. ERROR_FORMAT for what it asks that is not done here. */
CHECKED Status processor_read(const char *folder, ImageProcessor *processor, bool *found);

/* Writes preprocessor_config.json into a folder, as ViTImageProcessor reads it. */
CHECKED Status processor_write(const char *folder, const ImageProcessor *processor);
