/* image: pixels in memory, interleaved, row by row. */
#pragma once

#include "base/memory.h"

typedef struct {
    uint8_t *pixels; // (height, width, channels), freed by image_free
    int64_t height, width, channels;
} Image;

/* Frees the pixels and leaves an all-zero image. */
static inline void image_free(Image *image) {
    memory_free(image->pixels);
    *image = (Image){0};
}
