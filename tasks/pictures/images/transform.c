#include "tasks/pictures/images/transform.h"

#include "base/random.h"
#include "tasks/pictures/images/resample.h"

#include <math.h>
#include <string.h>

enum { ATTEMPTS = 10, DRAWS = 4 }; // attempts to draw a part of a picture
enum { STREAM_FLIP = 0x70696374 }; // "pict", of base/random.h
enum { STREAM_CROP = STREAM_FLIP + 1, STREAM_PAD = STREAM_CROP + ATTEMPTS * DRAWS };
enum { STREAM_ERASE = STREAM_PAD + 2, STREAM_RECTANGLE };

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

/* Parameters of random crops. */
typedef struct {
    uint64_t stream;
    double least, most; // share of the area
    double shape;       // maximum aspect ratio
} Parts;

/* False if none of several draws fits in the picture. */
static bool draw_part(int64_t height, int64_t width, Parts parts, uint64_t seed, uint64_t counter, Cut *cut) {
    const double limit = log(parts.shape);
    for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        double u[DRAWS];
        for (uint64_t i = 0; i < DRAWS; i++)
            u[i] = random_uniform(seed, parts.stream + attempt * DRAWS + i, counter);
        double area = (double)height * (double)width * between(parts.least, parts.most, u[0]);
        double shape = exp(between(-limit, limit, u[1]));
        int64_t w = llround(sqrt(area * shape)), h = llround(sqrt(area / shape));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        *cut = (Cut){.top = (int64_t)((double)(height - h + 1) * u[2]),
                     .left = (int64_t)((double)(width - w + 1) * u[3]),
                     .height = h,
                     .width = w};
        return true;
    }
    return false;
}

/* A random part with at least `share` of the picture's area; if none of several draws fits, the largest
 * central part with a valid aspect ratio. */
static Cut draw_crop(const Image *image, double share, uint64_t seed, uint64_t counter) {
    const Parts parts = {STREAM_CROP, share, 1, 4.0 / 3};
    double height = (double)image->height, width = (double)image->width;
    Cut cut;
    if (draw_part(image->height, image->width, parts, seed, counter, &cut)) return cut;
    double shape = fmin(fmax(width / height, 3.0 / 4), 4.0 / 3);
    int64_t w = llround(fmin(width, height * shape)), h = llround(fmin(height, width / shape));
    w = w < 1 ? 1 : w;
    h = h < 1 ? 1 : h;
    return (Cut){.top = (image->height - h) / 2, .left = (image->width - w) / 2, .height = h, .width = w};
}

/* A random crop of the padded picture is the picture shifted, filled with black. */
static void move(const ImageProcessor *p, int64_t pad, uint64_t seed, uint64_t counter, uint8_t *pixels) {
    uint64_t places = (uint64_t)(2 * pad + 1);
    int64_t down = (int64_t)random_below(seed, STREAM_PAD, counter, places) - pad;
    int64_t right = (int64_t)random_below(seed, STREAM_PAD + 1, counter, places) - pad;
    int64_t kept = p->width - (right < 0 ? -right : right), stride = p->width * p->channels;
    int64_t to = right > 0 ? right * p->channels : 0, from = right < 0 ? -right * p->channels : 0;
    for (int64_t i = 0; i < p->height; i++) {
        int64_t y = down > 0 ? p->height - 1 - i : i, source = y - down; // a row that has not been
                                                                         // overwritten yet
        uint8_t *row = pixels + y * stride;
        if (kept <= 0 || source < 0 || source >= p->height) {
            memset(row, 0, (size_t)stride);
            continue;
        }
        memmove(row + to, pixels + source * stride + from, (size_t)(kept * p->channels));
        memset(row, 0, (size_t)to);
        memset(row + kept * p->channels, 0, (size_t)from);
    }
}

/* Erased pixels become the mean, which is 0 for the model. */
static void erase(const ImageProcessor *p, uint64_t seed, uint64_t counter, uint8_t *pixels) {
    const Parts parts = {STREAM_RECTANGLE, 0.02, 1.0 / 3, 10.0 / 3};
    uint8_t mean[IMAGE_CHANNELS];
    Cut cut;
    if (!draw_part(p->height, p->width, parts, seed, counter, &cut)) return;
    for (int64_t c = 0; c < p->channels; c++) mean[c] = (uint8_t)lrintf(fminf(fmaxf(p->mean[c], 0), 1) * 255);
    for (int64_t y = cut.top; y < cut.top + cut.height; y++)
        for (int64_t x = cut.left; x < cut.left + cut.width; x++)
            memcpy(pixels + (y * p->width + x) * p->channels, mean, (size_t)p->channels);
}

void image_augment(const Image *image, const ImageProcessor *p, const Augmentation *a, uint64_t seed,
                   uint64_t counter, uint8_t *out) {
    Cut cut = {.height = image->height, .width = image->width};
    if (a->crop < 1) cut = draw_crop(image, a->crop, seed, counter);
    cut.scaled_height = p->height;
    cut.scaled_width = p->width;
    cut.mirrored = a->flip && random_uniform(seed, STREAM_FLIP, counter) < 0.5;
    image_resample(image, &cut, p->resample, p->height, p->width, out);
    if (a->pad > 0) move(p, a->pad, seed, counter, out);
    if (random_uniform(seed, STREAM_ERASE, counter) < a->erase) erase(p, seed, counter, out);
}
