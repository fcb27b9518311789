/* Fuzzes preprocessor_config.json. An accepted one must be usable, and survive writing and reading. */
#include "base/memory.h"
#include "tasks/pictures/images/transform.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum { SIDE_MOST = 64 };

static void check(const ImageProcessor *p) {
    must(p->channels == 1 || p->channels == IMAGE_CHANNELS);
    must(p->height >= 1 && p->height <= p->scaled_height && p->width >= 1);
    must(p->width <= (p->scaled_width ? p->scaled_width : p->scaled_height));
    for (int64_t c = 0; c < p->channels; c++) {
        must(isfinite(p->deviation[c]) && p->deviation[c] > 0);
        must(isfinite(p->mean[c] / p->deviation[c]) && isfinite((1 - p->mean[c]) / p->deviation[c]));
    }
}

static void compare(const ImageProcessor *p, const ImageProcessor *back) {
    must(back->height == p->height && back->width == p->width && back->channels == p->channels);
    must(back->scaled_height == p->scaled_height && back->scaled_width == p->scaled_width);
    must(back->resample == p->resample);
    for (int64_t c = 0; c < p->channels; c++)
        must(back->mean[c] == p->mean[c] && back->deviation[c] == p->deviation[c]);
}

/* Processes a small picture, unless the processor's sizes are large. */
static void process(const ImageProcessor *p) {
    uint8_t pixels[5 * 7 * IMAGE_CHANNELS];
    int64_t width = p->scaled_width ? p->scaled_width : p->scaled_height * 2;
    if (p->scaled_height > SIDE_MOST || width > SIDE_MOST) return;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(37 * i);
    uint8_t *out = memory_allocate((size_t)(p->height * p->width * p->channels));
    image_process(&(Image){pixels, 5, 7, p->channels}, p, out);
    memory_free(out);
}

static void read_processor(const uint8_t *data, size_t size) {
    const char folder[] = SCRATCH;
    scratch_put("preprocessor_config.json", data, size);
    ImageProcessor p = {0}, back = {0};
    bool found;
    Status status = processor_read(folder, &p, &found);
    must(found);
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    check(&p);
    must(!processor_write(folder, &p) && !processor_read(folder, &back, &found));
    compare(&p, &back);
    process(&p);
}

FUZZ(processor, read_processor, mutate_json)
