#include "tasks/pictures/images/jpeg.h"

/* ---- the inverse cosine transform ---- */

/* Constants have 13 binary places, and between the two passes values keep 2. */
enum { PLACES = 13, BETWEEN = 2 };

typedef int32_t Row __attribute__((vector_size(JPEG_SIDE * sizeof(int32_t))));

/* Row k: the wave that coefficient k stands for. Sums are exact, so what counts is the rounding of the
 * constants: libjpeg rounds those of a graph with fewer products (Loeffler, Ligtenberg, Moschytz 1989), of
 * which these are sums. */
static const Row waves[JPEG_SIDE] = {{8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192},
                                     {11363, 9633, 6437, 2260, -2260, -6437, -9633, -11363},
                                     {10703, 4433, -4433, -10703, -10703, -4433, 4433, 10703},
                                     {9633, -2259, -11362, -6436, 6436, 11362, 2259, -9633},
                                     {8192, -8192, -8192, 8192, 8192, -8192, -8192, 8192},
                                     {6437, -11362, 2261, 9633, -9633, -2261, 11362, -6437},
                                     {4433, -10704, 10704, -4433, -4433, 10704, -10704, 4433},
                                     {2260, -6436, 9633, -11363, 11363, -9633, 6436, -2260}};

static uint8_t to_byte(int32_t value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Columns first. */
void jpeg_transform(uint8_t *out, int stride, int16_t coefficients[JPEG_BLOCK]) {
    enum { MIDDLE = 128, SCALE = 3 }; // both passes together are 8 times the transform
    enum { FIRST = PLACES - BETWEEN, SECOND = PLACES + BETWEEN + SCALE };
    Row x[JPEG_SIDE], between[JPEG_SIDE];
    for (int k = 0; k < JPEG_SIDE; k++)
        for (int j = 0; j < JPEG_SIDE; j++) x[k][j] = coefficients[JPEG_SIDE * k + j];
    for (int i = 0; i < JPEG_SIDE; i++) {
        Row sum = (Row){0} + (1 << (FIRST - 1));
        for (int k = 0; k < JPEG_SIDE; k++) sum += x[k] * waves[k][i];
        between[i] = sum >> FIRST;
    }
    for (int i = 0; i < JPEG_SIDE; i++) {
        Row sum = (Row){0} + (MIDDLE << SECOND) + (1 << (SECOND - 1));
        for (int k = 0; k < JPEG_SIDE; k++) sum += between[i][k] * waves[k];
        sum >>= SECOND;
        for (int j = 0; j < JPEG_SIDE; j++) out[i * stride + j] = to_byte(sum[j]);
    }
}

/* ---- halved colours ---- */

/* Of one or two values each is repeated. */
void jpeg_double(uint8_t *restrict out, const uint8_t *near, const uint8_t *far, int width, int half) {
    enum { INTERPOLATED = 3 };
    if (width < INTERPOLATED) {
        for (int i = 0; i < width; i++) out[2 * i] = out[2 * i + 1] = near[i];
        return;
    }
    const int64_t last = width - 1;
    const int other = 15 - half;
    out[0] = (uint8_t)((4 * (3 * near[0] + far[0]) + half) >> 4);
    for (int64_t i = 0; i < last; i++) {
        int left = 3 * near[i] + far[i], right = 3 * near[i + 1] + far[i + 1];
        out[2 * i + 1] = (uint8_t)((3 * left + right + other) >> 4);
        out[2 * i + 2] = (uint8_t)((3 * right + left + half) >> 4);
    }
    out[2 * last + 1] = (uint8_t)((4 * (3 * near[last] + far[last]) + other) >> 4);
}

/* ---- colours ---- */

/* `step` is a constant wherever this is inlined, so that it becomes vector code. */
static inline __attribute__((always_inline)) void colours(uint8_t *restrict out, const uint8_t *luma,
                                                          const uint8_t *blue, const uint8_t *red, int count,
                                                          const int step) {
    enum {
        HALF = 1 << 15,
        OF_RED = 91881,
        OF_BLUE = 116130,
        GREEN_OF_BLUE = 22554,
        GREEN_OF_RED = 46802
    }; // of 2^16
    for (int64_t i = 0; i < count; i++) {
        int b = blue[i] - 128, r = red[i] - 128;
        out[step * i] = to_byte(luma[i] + ((OF_RED * r + HALF) >> 16));
        out[step * i + 1] = to_byte(luma[i] + ((HALF - GREEN_OF_BLUE * b - GREEN_OF_RED * r) >> 16));
        out[step * i + 2] = to_byte(luma[i] + ((OF_BLUE * b + HALF) >> 16));
        if (step == 4) out[step * i + 3] = 255;
    }
}

void jpeg_colours(uint8_t *out, const uint8_t *luma, const uint8_t *blue, const uint8_t *red, int count,
                  int step) {
    if (step == 3)
        colours(out, luma, blue, red, count, 3);
    else
        colours(out, luma, blue, red, count, 4);
}
