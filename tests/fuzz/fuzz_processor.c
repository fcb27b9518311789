/* A preprocessor_config.json from bytes. What is accepted can be computed with, and comes back as it is when
 * it is written. */
#include "data/images/processor.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

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
}

FUZZ(processor, read_processor, NULL)
