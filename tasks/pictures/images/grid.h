/* grid: resizes a square grid of vectors by cubic convolution (Keys 1981, with a = -0.75), like
 * torch.nn.functional.interpolate with mode="bicubic" and align_corners=False: positions learned for one size
 * of pictures serve another (Dosovitskiy et al. 2021, section 3.2). */
#pragma once

#include <stdint.h>

/* from (side, side, width), to (new_side, new_side, width). */
void grid_resize(const float *from, int64_t side, int64_t new_side, int64_t width, float *to);
