#include "tasks/pictures/pictures.h"

#include "base/checked.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/random.h"

#include <pthread.h>
#include <string.h>

enum { MIX_SEED = 0x6d6978, BROKEN_IN_A_ROW = 100 };

/* ---- broken pictures ---- */

struct BrokenPictures {
    pthread_mutex_t lock;
    uint8_t *seen; // (pictures)
    PathList messages;
};

BrokenPictures *broken_open(int64_t pictures) {
    BrokenPictures *broken = memory_allocate(sizeof *broken);
    broken->seen = memory_array((size_t)pictures, 1);
    pthread_mutex_init(&broken->lock, NULL);
    return broken;
}

void broken_close(BrokenPictures *broken) {
    if (!broken) return;
    pthread_mutex_destroy(&broken->lock);
    path_list_free(&broken->messages);
    memory_free(broken->seen);
    memory_free(broken);
}

int64_t broken_count(BrokenPictures *broken) {
    pthread_mutex_lock(&broken->lock);
    int64_t count = broken->messages.count;
    pthread_mutex_unlock(&broken->lock);
    return count;
}

char *broken_message(BrokenPictures *broken, int64_t index) {
    pthread_mutex_lock(&broken->lock);
    char *message = memory_text(broken->messages.paths[index]);
    pthread_mutex_unlock(&broken->lock);
    return message;
}

static void pass_over(BrokenPictures *broken, int64_t picture, Status status) {
    pthread_mutex_lock(&broken->lock);
    if (!broken->seen[picture]) path_list_add(&broken->messages, memory_text(status_message(status)));
    broken->seen[picture] = 1;
    pthread_mutex_unlock(&broken->lock);
    status_free(status);
}

/* ---- batches ---- */

typedef struct {
    LoaderOptions options;
    PictureOptions pictures;
    int64_t count;   // pictures per epoch
    int64_t classes; // offset of the classes in the batch's memory, in bytes
} Pictures;

/* Bytes per picture. */
static int64_t picture_bytes(const ImageProcessor *p) {
    return p->height * p->width * p->channels;
}

/* The source's index of the part's picture `index`. */
static int64_t in_source(const Pictures *p, int64_t index) {
    int64_t picture = p->options.first + index;
    return p->pictures.mixed ? random_permute(MIX_SEED, 0, images_count(p->pictures.source), picture)
                             : picture;
}

static void transform(const Pictures *p, const Image *image, int64_t epoch, int64_t index, uint8_t *out) {
    const PictureOptions *o = &p->pictures;
    if (o->augmentation)
        image_augment(image, &o->processor, o->augmentation, p->options.seed,
                      (uint64_t)(epoch * p->count + index), out);
    else
        image_process(image, &o->processor, out);
}

/* Writes the picture and returns the class of row `position`. */
static Status make_row(const Pictures *p, int64_t position, uint8_t *out, int32_t *label) {
    const PictureOptions *o = &p->pictures;
    int64_t epoch = position / p->count, index = position % p->count;
    if (p->options.shuffle) index = random_permute(p->options.seed, (uint64_t)epoch, p->count, index);
    *label = -1;
    memset(out, 0, (size_t)picture_bytes(&o->processor));
    if (o->once && epoch > 0) return OK;
    for (int attempt = 0; attempt < BROKEN_IN_A_ROW; attempt++, index = (index + 1) % p->count) {
        Image image;
        int64_t picture = in_source(p, index);
        Status status = images_read(o->source, picture, o->processor.channels, &image);
        if (!status) {
            transform(p, &image, epoch, index, out);
            image_free(&image);
            *label = images_label(o->source, picture);
            return OK;
        }
        if (!o->broken) return status;
        pass_over(o->broken, picture, status);
        if (o->once) return OK;
    }
    return fail(ERROR_FORMAT, "%d consecutive pictures are broken; --skip-broken skips no more",
                BROKEN_IN_A_ROW);
}

static Status make_pictures(void *context, int64_t position, void *memory, Batch *batch) {
    const Pictures *p = context;
    uint8_t *out = memory;
    int32_t *labels = (int32_t *)(out + p->classes);
    *batch = (Batch){.pictures = out, .targets = labels, .seq = 1, .position = position};
    for (int64_t row = 0; row < p->options.batch; row++, out += picture_bytes(&p->pictures.processor)) {
        TRY(make_row(p, position + row, out, &labels[row]));
        batch->tokens += labels[row] >= 0;
    }
    return OK;
}

static Status count_pictures(void *context, int64_t position, int64_t *targets) {
    (void)position;
    *targets = ((const Pictures *)context)->options.batch;
    return OK;
}

Status loader_open_pictures(const LoaderOptions *o, const PictureOptions *pictures, Loader **loader) {
    int64_t bytes, labels, all = images_count(pictures->source),
                           count = o->length ? o->length : all - o->first;
    *loader = NULL;
    TRY(loader_check(o, 1, &labels));
    if (o->first < 0 || count < 1 || count > all - o->first)
        return fail(ERROR_INTERNAL,
                    "the part of the data from picture %lld on, %lld pictures long, is out of range",
                    (long long)o->first, (long long)o->length);
    if (checked_multiply(picture_bytes(&pictures->processor), o->batch, &bytes) ||
        checked_add(bytes, labels + (int64_t)sizeof(int32_t), &bytes))
        return fail(ERROR_USAGE, "a batch of %lld pictures is out of range", (long long)o->batch);
    Pictures *p = memory_allocate(sizeof *p);
    *p = (Pictures){.options = *o, .pictures = *pictures, .count = count};
    p->classes = (bytes - labels) / (int64_t)sizeof(int32_t) * (int64_t)sizeof(int32_t);
    BatchMaker maker = {.context = p,
                        .windows = count,
                        .bytes = bytes,
                        .make = make_pictures,
                        .count = count_pictures,
                        .release = memory_free};
    return loader_start(o, maker, loader);
}
