#include "tasks/pictures/attention_map.h"

#include "base/memory.h"
#include "tasks/pictures/images/resample.h"
#include "tasks/pictures/images/write.h"

#include <math.h>

enum { LEAST_SIDE = 448, SCALE_WIDTH = 24, GAP = 8, FULL = 255 };

/* The mean over the heads, scaled to a maximum of FULL: (side, side) patches. *largest gets the maximum. */
static Status read_map(const PicturePasses *p, int64_t side, uint8_t *bytes, double *largest) {
    const Inference *in = &p->inference;
    int64_t heads = in->model.config.heads, patches = side * side, row = patches + 1;
    OWNED float *values = memory_array((size_t)(heads * row), sizeof *values);
    float most = 0;
    TRY(values_read((Ctx *)&in->ctx, in->model.map, 0, heads * row, values));
    for (int64_t i = 0; i < patches; i++) {
        float sum = 0;
        for (int64_t head = 0; head < heads; head++) sum += values[head * row + 1 + i];
        values[1 + i] = sum; // the first head's values are no longer needed
        most = fmaxf(most, sum);
    }
    for (int64_t i = 0; i < patches; i++) bytes[i] = (uint8_t)(most > 0 ? FULL * values[1 + i] / most : 0);
    *largest = most / (double)heads;
    return OK;
}

static void enlarge(const Image *small, Image *large) {
    const Cut cut = {.height = small->height,
                     .width = small->width,
                     .scaled_height = large->height,
                     .scaled_width = large->width};
    image_resample(small, &cut, RESAMPLE_BILINEAR, large->height, large->width, large->pixels);
}

/* Black, red, yellow, white. */
static int heat_color(int heat, int64_t channel) {
    int value = 3 * heat - FULL * (int)channel;
    return value < 0 ? 0 : value > FULL ? FULL : value;
}

/* Blends the gray picture and the heat map in equal parts. */
static void blend(const Image *picture, const Image *map, Image *out) {
    for (int64_t y = 0; y < picture->height; y++) {
        for (int64_t x = 0; x < picture->width; x++) {
            const uint8_t *pixel = picture->pixels + (y * picture->width + x) * picture->channels;
            uint8_t *to = out->pixels + (y * out->width + x) * IMAGE_CHANNELS;
            int heat = map->pixels[y * map->width + x], gray = 0;
            for (int64_t c = 0; c < picture->channels; c++) gray += pixel[c];
            gray /= (int)picture->channels;
            for (int64_t c = 0; c < IMAGE_CHANNELS; c++) to[c] = (uint8_t)((gray + heat_color(heat, c)) / 2);
        }
    }
}

/* Draws the color scale right of the picture, with the largest value at the top. */
static void draw_scale(Image *out) {
    for (int64_t y = 0; y < out->height; y++) {
        int heat = (int)(FULL * (out->height - 1 - y) / (out->height - 1));
        for (int64_t x = out->width - SCALE_WIDTH; x < out->width; x++)
            for (int64_t c = 0; c < IMAGE_CHANNELS; c++)
                out->pixels[(y * out->width + x) * IMAGE_CHANNELS + c] = (uint8_t)heat_color(heat, c);
    }
}

static Image new_image(int64_t height, int64_t width, int64_t channels) {
    return (Image){memory_allocate((size_t)(height * width * channels)), height, width, channels};
}

Status attention_map_write(const char *path, const PicturePasses *p, double *largest) {
    const Config *c = &p->inference.model.config;
    int64_t side = c->image / c->patch, scale = (LEAST_SIDE + c->image - 1) / c->image,
            full = scale * c->image;
    Image seen = {(uint8_t *)p->batch.pictures, c->image, c->image, c->channels};
    CLOSED_BY(image_free) Image patches = new_image(side, side, 1);
    CLOSED_BY(image_free) Image picture = new_image(full, full, c->channels);
    CLOSED_BY(image_free) Image map = new_image(full, full, 1);
    CLOSED_BY(image_free) Image out = new_image(full, full + GAP + SCALE_WIDTH, IMAGE_CHANNELS);
    TRY(read_map(p, side, patches.pixels, largest));
    enlarge(&seen, &picture);
    enlarge(&patches, &map);
    blend(&picture, &map, &out);
    draw_scale(&out);
    return image_write(path, &out);
}
