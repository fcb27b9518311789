/* Batches of synthetic pictures: a pattern per class, mixed with noise. */
#include "base/checked.h"
#include "base/memory.h"
#include "base/random.h"
#include "tasks/pictures/pictures.h"

enum { STREAM_NOISE = 0x64726177, STREAM_CLASS, STREAM_FIRST }; // "draw"; of base/random.h
enum { SHIFTS = 1 << 16 }; // offsets in the noise where a picture can begin

typedef struct {
    LoaderOptions options;
    DrawnPictures what;
    int64_t bytes;  // bytes of a picture
    uint8_t *noise; // (SHIFTS + bytes)
} Drawn;

static const uint8_t *noise_at(const Drawn *d, uint64_t stream, int64_t index) {
    return d->noise + random_below(d->what.seed, stream, (uint64_t)index, SHIFTS);
}

/* Picture `index`: the mean of its class's noise and its own. */
static int32_t draw(const Drawn *d, int64_t index, uint8_t *out) {
    int32_t label =
        (int32_t)random_below(d->what.seed, STREAM_CLASS, (uint64_t)index, (uint64_t)d->what.classes);
    const uint8_t *of_class = noise_at(d, STREAM_FIRST, -1 - label), *own = noise_at(d, STREAM_FIRST, index);
    for (int64_t i = 0; i < d->bytes; i++) out[i] = (uint8_t)((of_class[i] + own[i]) >> 1);
    return label;
}

static Status make(void *context, int64_t position, void *memory, Batch *batch) {
    const Drawn *d = context;
    const LoaderOptions *o = &d->options;
    int32_t *labels = memory;
    uint8_t *pictures = (uint8_t *)(labels + o->batch);
    *batch =
        (Batch){.targets = labels, .pictures = pictures, .seq = 1, .position = position, .tokens = o->batch};
    for (int64_t row = 0; row < o->batch; row++) {
        int64_t epoch = (position + row) / o->length, index = (position + row) % o->length;
        if (o->shuffle) index = random_permute(o->seed, (uint64_t)epoch, o->length, index);
        labels[row] = draw(d, o->first + index, pictures + row * d->bytes);
    }
    return OK;
}

static Status count(void *context, int64_t position, int64_t *targets) {
    (void)position;
    *targets = ((const Drawn *)context)->options.batch;
    return OK;
}

static void release(void *context) {
    Drawn *d = context;
    memory_free(d->noise);
    memory_free(d);
}

Status loader_open_drawn(const LoaderOptions *options, const DrawnPictures *what, Loader **loader) {
    int64_t ids, bytes, all;
    *loader = NULL;
    TRY(loader_check(options, 0, &ids));
    if (checked_multiply(what->side * what->side, what->channels, &bytes) ||
        checked_multiply(bytes, options->batch, &all) || checked_add(all, ids, &all))
        return fail(ERROR_USAGE, "batches of %lld pictures are out of range", (long long)options->batch);
    Drawn *d = memory_allocate(sizeof *d);
    *d = (Drawn){.options = *options,
                 .what = *what,
                 .bytes = bytes,
                 .noise = memory_array((size_t)(SHIFTS + bytes), 1)};
    if (!d->options.length) d->options.length = DRAWN_PICTURES - options->first;
    for (int64_t i = 0; i < SHIFTS + bytes; i++)
        d->noise[i] = (uint8_t)random_below(what->seed, STREAM_NOISE, (uint64_t)i, 256);
    BatchMaker maker = {.context = d,
                        .windows = d->options.length,
                        .bytes = all,
                        .make = make,
                        .count = count,
                        .release = release};
    return loader_start(options, maker, loader);
}
