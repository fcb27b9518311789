/* grid: a square of vectors in another size, by cubic convolution (Keys 1981, with a = -0.75), as
 * torch.nn.functional.interpolate does with mode="bicubic" and align_corners=False: positions that were
 * learned for one size of pictures serve another (Dosovitskiy et al. 2021, section 3.2). */
#pragma once

#include <stdint.h>

/* from (side, side, width), to (new_side, new_side, width). */
void grid_resize(const float *from, int64_t side, int64_t new_side, int64_t width, float *to);
