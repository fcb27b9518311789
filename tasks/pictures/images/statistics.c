/* Mean and deviation of the training pictures, for a new model. */
#include "base/random.h"
#include "tasks/pictures/images/images.h"

#include <math.h>

enum { SAMPLE_SEED = 0x6d65616e, FILES = 64, IN_MEMORY = 4096 };

typedef struct {
    double sum[IMAGE_CHANNELS], squares[IMAGE_CHANNELS], pixels;
} Sums;

static void add(const Image *image, Sums *sums) {
    const uint8_t *pixel = image->pixels;
    for (int64_t i = 0; i < image->height * image->width; i++)
        for (int64_t c = 0; c < image->channels; c++, pixel++) {
            sums->sum[c] += *pixel;
            sums->squares[c] += (double)*pixel * *pixel;
        }
    sums->pixels += (double)(image->height * image->width);
}

/* Rounds to four digits. */
static float rounded(double value) {
    return (float)(round(1e4 * value) / 1e4);
}

Status images_measure(const ImageSource *source, ImageProcessor *p) {
    int64_t count = images_count(source), samples = images_height(source) ? IN_MEMORY : FILES;
    Status status = OK;
    Sums sums = {0};
    for (int64_t i = 0; i < samples && i < count; i++) {
        Image image;
        status_free(status); // a broken picture's error is reported by training
        status = images_read(source, random_permute(SAMPLE_SEED, 0, count, i), p->channels, &image);
        if (!status) add(&image, &sums);
        image_free(&image);
    }
    if (sums.pixels == 0) return status;
    status_free(status);
    for (int64_t c = 0; c < p->channels; c++) {
        double mean = sums.sum[c] / sums.pixels / 255;
        double variance = sums.squares[c] / sums.pixels / (255 * 255) - mean * mean;
        p->mean[c] = rounded(mean);
        p->deviation[c] = fmaxf(rounded(sqrt(fmax(variance, 0))), 1.0f / 255);
    }
    return OK;
}
