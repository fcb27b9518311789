/* jpeg: what becomes of a JPEG's coefficients, in libjpeg's arithmetic and to its bits, with which the
 * world's data sets were read: stb_image's own rounds by one differently at each of these steps. */
#pragma once

#include <stdint.h>

enum { JPEG_SIDE = 8, JPEG_BLOCK = JPEG_SIDE * JPEG_SIDE };

/* out (8 rows, `stride` apart) = the inverse cosine transform of a block's coefficients, which are
 * multiplied by their quantizers already. */
void jpeg_transform(uint8_t *out, int stride, int16_t coefficients[JPEG_BLOCK]);

/* out (2 * width) = a row of a plane of colours that is halved: each value is weighed 3 : 1 with its
 * neighbour on that side, and so are the rows `near`, its own, and `far`, which are the same where only
 * columns are halved. `half`, of 16, is what is added on the left before rounding down, and 15 - half on
 * the right. */
enum { JPEG_HALF = 8, JPEG_HALF_ACROSS = 7 }; // where both are halved; columns only
void jpeg_double(uint8_t *out, const uint8_t *near, const uint8_t *far, int width, int half);

/* out (count pixels, `step` bytes apart; the fourth, if there is one, is 255) = the colours of a row:
 * ITU-R BT.601 over all 256 values. */
void jpeg_colours(uint8_t *out, const uint8_t *luma, const uint8_t *blue, const uint8_t *red, int count,
                  int step);
