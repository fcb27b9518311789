#include "tasks/pictures/attention_map.h"

#include "base/memory.h"
#include "tasks/pictures/images/resample.h"
#include "tasks/pictures/images/write.h"

#include <math.h>

enum { LEAST_SIDE = 448, DIM = 3 /* parts of 8 that the darkest keeps */ };

/* The mean over the heads, 255 for the largest: (side, side) of patches. */
static Status read_map(const PicturePasses *p, int64_t side, uint8_t *bytes) {
    const Inference *in = &p->inference;
    int64_t heads = in->model.config.heads, patches = side * side, row = patches + 1;
    float *values = memory_array((size_t)(heads * row), sizeof *values), most = 0;
    Status status = values_read((Ctx *)&in->ctx, in->model.map, 0, heads * row, values);
    for (int64_t i = 0; i < patches && !status; i++) {
        float sum = 0;
        for (int64_t head = 0; head < heads; head++) sum += values[head * row + 1 + i];
        values[1 + i] = sum; // of the first head, which is not needed any more
        most = fmaxf(most, sum);
    }
    for (int64_t i = 0; i < patches && !status; i++)
        bytes[i] = (uint8_t)(most > 0 ? 255 * values[1 + i] / most : 0);
    memory_free(values);
    return status;
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

Status attention_map_write(const char *path, const PicturePasses *p) {
    const Config *c = &p->inference.model.config;
    int64_t side = c->image / c->patch, scale = (LEAST_SIDE + c->image - 1) / c->image,
            full = scale * c->image;
    Image seen = {(uint8_t *)p->batch.pictures, c->image, c->image, c->channels};
    Image patches = {memory_allocate((size_t)(side * side)), side, side, 1};
    Image picture = {memory_allocate((size_t)(full * full * c->channels)), full, full, c->channels};
    Image map = {memory_allocate((size_t)(full * full)), full, full, 1};
    Image out = {memory_allocate((size_t)(full * full * IMAGE_CHANNELS)), full, full, IMAGE_CHANNELS};
    Status status = read_map(p, side, patches.pixels);
    if (!status) {
        enlarge(&seen, &picture);
        enlarge(&patches, &map);
        tint(&picture, &map, &out);
        status = image_write(path, &out);
    }
    image_free(&patches);
    image_free(&picture);
    image_free(&map);
    image_free(&out);
    return status;
}
