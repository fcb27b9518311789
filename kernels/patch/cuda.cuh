/* patch on CUDA: sizes as kernel arguments. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/patch/patch.h"

/* (value - mean) / deviation = byte * scale + shift. */
struct PixelScale {
    float scale[PATCH_CHANNELS], shift[PATCH_CHANNELS];
};

static inline PixelScale pixel_scale(const PatchForward *p) {
    PixelScale s = {};
    for (int c = 0; c < PATCH_CHANNELS && p->deviation[c] > 0; c++) {
        s.scale[c] = (float)(1 / (255 * p->deviation[c]));
        s.shift[c] = (float)(-p->mean[c] / p->deviation[c]);
    }
    return s;
}

/* The pixel of input k of row (b, t) of x, if the row is a patch and not the class token. */
__device__ inline int64_t pixel_at(const PatchSizes &s, int64_t b, int64_t n, int k, int *channel) {
    const int P = (int)s.size, c = k / (P * P), i = k / P % P, j = k % P;
    const int64_t row = n / s.across * P + i, column = n % s.across * P + j;
    *channel = c;
    return ((b * s.height + row) * s.width + column) * s.channels + c;
}
