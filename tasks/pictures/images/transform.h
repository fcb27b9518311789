/* transform: converts a picture of any size for a model. `out` is (height, width, channels) bytes of the
 * processor; the picture must have its channels. */
#pragma once

#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>

/* Like ViTImageProcessor, for validation and inference: scales and crops from the centre. */
void image_process(const Image *image, const ImageProcessor *processor, uint8_t *out);

/* Data augmentation. */
typedef struct {
    double crop;  // random crop with at least this share of the picture's area; 1: all of it
    bool flip;    // flip half of the pictures horizontally
    int64_t pad;  // random crop of the model's picture padded by this many black pixels on each side; 0: none
    double erase; // erase a rectangle in this share of the pictures; 0: in none
} Augmentation;

/* Random resized crop with an aspect ratio between 3:4 and 4:3 (Szegedy et al. 2015, "Going deeper with
 * convolutions", section 6); finally random erasing with the processor's mean (Zhong et al. 2020, "Random
 * erasing data augmentation"). The result depends only on seed and counter. */
void image_augment(const Image *image, const ImageProcessor *processor, const Augmentation *augmentation,
                   uint64_t seed, uint64_t counter, uint8_t *out);
