/* processor: preprocessing of pictures: their size, and the mean and standard deviation with which the
 * model's first operation normalizes them. In folders of transformers this is preprocessor_config.json. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { IMAGE_CHANNELS = 3 }; // most channels: 1 is grey, 3 are red, green and blue

/* Pillow's filters; each is widened when it shrinks a picture. */
typedef enum { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC } Resample;

typedef struct {
    int64_t height, width, channels;     // size of the model's pictures, which are cropped from the centre
    int64_t scaled_height, scaled_width; // size to scale a picture to; width 0: its shorter side becomes
                                         // height
    Resample resample;
    float mean[IMAGE_CHANNELS];      // mean of values from 0 to 1; the model reads (value - mean) / deviation
    float deviation[IMAGE_CHANNELS]; // standard deviation of these values
} ImageProcessor;

/* Reads the folder's preprocessor_config.json; members that it does not set stay unchanged. `found`: whether
 * it exists. ERROR_FORMAT for unsupported settings. */
CHECKED Status processor_read(const char *folder, ImageProcessor *processor, bool *found);

/* Writes preprocessor_config.json for ViTImageProcessor. */
CHECKED Status processor_write(const char *folder, const ImageProcessor *processor);
