#include "data/images/transform.h"

#include "base/random.h"
#include "data/images/resample.h"

#include <math.h>

enum { STREAM_FLIP = 0x70696374, STREAM_CROP }; // "pict", of base/random.h
enum { CROP_ATTEMPTS = 10, CROP_DRAWS = 4 };

void image_process(const Image *image, const ImageProcessor *p, uint8_t *out) {
    int64_t height = image->height, width = image->width, shorter = height < width ? height : width;
    Cut cut = {
        .height = height, .width = width, .scaled_height = p->scaled_height, .scaled_width = p->scaled_width};
    if (!p->scaled_width) {
        cut.scaled_height = height * p->scaled_height / shorter;
        cut.scaled_width = width * p->scaled_height / shorter;
    }
    cut.first_row = (cut.scaled_height - p->height) / 2;
    cut.first_column = (cut.scaled_width - p->width) / 2;
    image_resample(image, &cut, p->resample, p->height, p->width, out);
}

static double between(double low, double high, double uniform) {
    return low + (high - low) * uniform;
}

/* A part of at least that share of the picture's area; the largest middle part in shape where none of several
 * draws fits. */
static Cut draw_crop(const Image *image, double share, uint64_t seed, uint64_t counter) {
    const double limit = log(4.0 / 3);
    double height = (double)image->height, width = (double)image->width;
    for (uint64_t attempt = 0; attempt < CROP_ATTEMPTS; attempt++) {
        double u[CROP_DRAWS];
        for (uint64_t i = 0; i < CROP_DRAWS; i++)
            u[i] = random_uniform(seed, STREAM_CROP + attempt * CROP_DRAWS + i, counter);
        double area = height * width * between(share, 1, u[0]), shape = exp(between(-limit, limit, u[1]));
        int64_t w = llround(sqrt(area * shape)), h = llround(sqrt(area / shape));
        if (w < 1 || h < 1 || w > image->width || h > image->height) continue;
        return (Cut){.top = (int64_t)((double)(image->height - h + 1) * u[2]),
                     .left = (int64_t)((double)(image->width - w + 1) * u[3]),
                     .height = h,
                     .width = w};
    }
    double shape = fmin(fmax(width / height, 3.0 / 4), 4.0 / 3);
    int64_t w = llround(fmin(width, height * shape)), h = llround(fmin(height, width / shape));
    w = w < 1 ? 1 : w;
    h = h < 1 ? 1 : h;
    return (Cut){.top = (image->height - h) / 2, .left = (image->width - w) / 2, .height = h, .width = w};
}

void image_augment(const Image *image, const ImageProcessor *p, const Augmentation *a, uint64_t seed,
                   uint64_t counter, uint8_t *out) {
    Cut cut = {.height = image->height, .width = image->width};
    if (a->crop < 1) cut = draw_crop(image, a->crop, seed, counter);
    cut.scaled_height = p->height;
    cut.scaled_width = p->width;
    cut.mirrored = a->flip && random_uniform(seed, STREAM_FLIP, counter) < 0.5;
    image_resample(image, &cut, p->resample, p->height, p->width, out);
}
