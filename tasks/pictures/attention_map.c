#include "tasks/pictures/attention_map.h"

#include "base/memory.h"
#include "tasks/pictures/images/resample.h"
#include "tasks/pictures/images/write.h"

#include <math.h>

enum { LEAST_SIDE = 448, DIM = 3 /* brightness, in eighths, of the darkest pixel */ };

/* The mean over the heads, scaled to a maximum of 255: (side, side) patches. */
static Status read_map(const PicturePasses *p, int64_t side, uint8_t *bytes) {
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
    for (int64_t i = 0; i < patches; i++) bytes[i] = (uint8_t)(most > 0 ? 255 * values[1 + i] / most : 0);
    return OK;
}

static void enlarge(const Image *small, Image *large) {
    const Cut cut = {.height = small->height,
                     .width = small->width,
                     .scaled_height = large->height,
                     .scaled_width = large->width};
    image_resample(small, &cut, RESAMPLE_BILINEAR, large->height, large->width, large->pixels);
}

static void tint(const Image *picture, const Image *map, Image *out) {
    for (int64_t i = 0; i < out->height * out->width; i++) {
        int attended = map->pixels[i];
        for (int64_t c = 0; c < IMAGE_CHANNELS; c++) {
            int value = picture->pixels[i * picture->channels + (picture->channels > 1 ? c : 0)];
            int lit = value * (DIM * 255 + (8 - DIM) * attended) / (8 * 255);
            out->pixels[i * IMAGE_CHANNELS + c] =
                (uint8_t)(c > 0 ? lit : lit + (255 - lit) * attended / (3 * 255));
        }
    }
}

static Image new_image(int64_t side, int64_t channels) {
    return (Image){memory_allocate((size_t)(side * side * channels)), side, side, channels};
}

Status attention_map_write(const char *path, const PicturePasses *p) {
    const Config *c = &p->inference.model.config;
    int64_t side = c->image / c->patch, scale = (LEAST_SIDE + c->image - 1) / c->image,
            full = scale * c->image;
    Image seen = {(uint8_t *)p->batch.pictures, c->image, c->image, c->channels};
    CLOSED_BY(image_free) Image patches = new_image(side, 1);
    CLOSED_BY(image_free) Image picture = new_image(full, c->channels);
    CLOSED_BY(image_free) Image map = new_image(full, 1);
    CLOSED_BY(image_free) Image out = new_image(full, IMAGE_CHANNELS);
    TRY(read_map(p, side, patches.pixels));
    enlarge(&seen, &picture);
    enlarge(&patches, &map);
    tint(&picture, &map, &out);
    return image_write(path, &out);
}
