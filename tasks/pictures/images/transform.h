/* transform: a picture of any size as a model takes it. `out` is (height, width, channels) bytes of the
 * processor, whose channels the picture has. */
#pragma once

#include "tasks/pictures/images/decode.h"
#include "tasks/pictures/images/processor.h"

#include <stdbool.h>

/* As ViTImageProcessor does it, in validation and inference: scaled, and the middle cut out. */
void image_process(const Image *image, const ImageProcessor *processor, uint8_t *out);

/* What training does to pictures, so that none is seen twice as the same. */
typedef struct {
    double crop;  // a part of the picture is taken, of at least this share of its area; 1: all of it
    bool flip;    // half of them are mirrored
    int64_t pad;  // a part of what the model takes, padded by as many black pixels on each side; 0: none
    double erase; // from this share of the pictures a rectangle is erased; 0: from none
} Augmentation;

/* Scaled to the model's size from a part that is drawn, between 3:4 and 4:3 in shape (Szegedy et al. 2015,
 * "Going deeper with convolutions", section 6); last, a rectangle takes the processor's mean (Zhong et al.
 * 2020, "Random erasing data augmentation"). What is drawn follows from seed and counter alone. */
void image_augment(const Image *image, const ImageProcessor *processor, const Augmentation *augmentation,
                   uint64_t seed, uint64_t counter, uint8_t *out);
