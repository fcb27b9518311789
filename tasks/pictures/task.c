/* The task "pictures": classification. */
#include "base/files.h"
#include "base/memory.h"
#include "run/option_rows.h"
#include "tasks/masked/infer.h"
#include "tasks/pictures/infer.h"
#include "tasks/pictures/pictures.h"
#include "tasks/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Batches being uploaded at once: pictures are a thousand times as large as tokens. */
enum { PICTURES_HELD = 3 };

typedef struct {
    Augmentation augmentation;
    bool skip_broken;
} PicturesTrain;

#define AT(member) .field = offsetof(PicturesTrain, member)

static const Option train_rows[] = {
    HEADING("Pictures"),
    {NUMBER("crop", 0, 1, augmentation.crop), .above = true,
     .doc = "train on parts of pictures, of at least this share of their area", .travels = true},
    {FLAG("flip", augmentation.flip), .doc = "train on pictures mirrored at random", .travels = true},
    {COUNT("pad", 0, 1 << 10, augmentation.pad), .doc = "train on crops of pictures padded by N pixels",
     .travels = true},
    {NUMBER("erase", 0, 1, augmentation.erase),
     .doc = "share of pictures to train on with a rectangle erased", .travels = true},
    {FLAG("skip-broken", skip_broken), .doc = "skip pictures that cannot be read", .travels = true},
};

static const PicturesTrain defaults = {.augmentation = {.crop = 0.25, .flip = true}};

static const OptionTable pictures_train = {train_rows, sizeof train_rows / sizeof *train_rows, &defaults,
                                           sizeof defaults};

typedef struct {
    ImageSource *images;       // NULL: synthetic pictures
    BrokenPictures *broken;    // NULL: broken pictures are errors
    Augmentation augmentation; // augmentation of training
} Source;

static void close_source(void *source) {
    Source *s = source;
    if (!s) return;
    images_close(s->images);
    broken_close(s->broken);
    memory_free(s);
}

/* ---- before the model ---- */

static Status open_files(const TrainOptions *o, const OptionSet *set, const char *data, ImagePart part,
                         Source **source) {
    const PicturesTrain *own = options_values(set, &pictures_train);
    OWNED char *cache = *o->out ? path_join(o->out, "cache") : NULL;
    Source *s = *source = memory_allocate(sizeof *s);
    s->augmentation = own->augmentation;
    TRY(images_open(data, part, cache, &s->images));
    if (own->skip_broken) s->broken = broken_open(images_count(s->images));
    return OK;
}

/* --val-data, or else the test part of the data. */
static Status open_validation(const TrainOptions *o, const OptionSet *set, const ImageSource *train,
                              Feed *feed) {
    Source *val = NULL;
    bool test = *o->val_data;
    if (!o->val_every || o->compare) return OK;
    if (!test) TRY(images_have_test(o->data, &test));
    if (!test) return OK;
    Status status = open_files(o, set, *o->val_data ? o->val_data : o->data, IMAGES_TEST, &val);
    feed->val_source = val;
    TRY(status);
    for (int64_t i = 0; i < images_classes(val->images); i++) {
        const char *name = images_class_name(val->images, i);
        if (i < images_classes(train) && strcmp(name, images_class_name(train, i)) == 0) continue;
        return fail(ERROR_FORMAT, "--val-data: class %" PRId64 ", %s, is not that of --data", i, name);
    }
    return OK;
}

/* A new model's channels, and its mean and deviation. */
static Status fit_model(const ImageSource *train, Config *c) {
    int64_t channels = images_channels(train);
    if (channels) c->channels = c->processor.channels = channels;
    return images_measure(train, &c->processor);
}

/* A new head has the classes of the data. */
static Status fit_head(const ImageSource *train, bool vocab_given, Session *session) {
    int64_t classes = images_classes(train);
    OWNED const char **names = memory_array((size_t)classes, sizeof *names);
    for (int64_t i = 0; i < classes; i++) names[i] = images_class_name(train, i);
    labels_set(&session->labels, names, classes);
    if (!vocab_given) session->config.vocab = classes;
    return config_validate(&session->config);
}

/* A model's head keeps its class names: training data is matched by number. */
static void report_names(const ImageSource *train, const Labels *labels) {
    char text[LABEL_TEXT];
    for (int64_t i = 0; i < images_classes(train); i++) {
        const char *name = images_class_name(train, i), *own = labels_name(labels, i, text);
        if (i >= labels->count || strcmp(name, own) == 0) continue;
        fprintf(stderr,
                "train: classes are matched by their order: \"%s\" of --data is the model's \"%s\"; "
                "--new-head adds a head with the data's names\n",
                name, own);
        return;
    }
}

static Status begin(TrainOptions *o, const OptionSet *set, Session *session, Feed *feed) {
    Config *c = &session->config;
    Source *source = NULL;
    if (o->seq > 1)
        return fail(ERROR_USAGE, "--seq=%" PRId64 " has no effect on pictures; their size is --image-size",
                    o->seq);
    o->seq = 1; // a picture has length 1
    if (!*o->data) return OK;
    Status status = open_files(o, set, o->data, IMAGES_TRAIN, &source);
    feed->source = source;
    TRY(fail_at(status, "--data"));
    const ImageSource *train = source->images;
    TRY(open_validation(o, set, train, feed));
    if (!session->folder) TRY(fit_model(train, c));
    if (!session->folder || c->new_head) TRY(fit_head(train, o->sizes.vocab, session));
    int64_t classes = images_classes(train);
    if (classes > c->vocab)
        return fail(ERROR_USAGE,
                    "--data has %" PRId64 " classes, but the model has only %" PRId64
                    "; --new-head adds a head for them",
                    classes, c->vocab);
    if (!o->quiet) report_names(train, &session->labels);
    const Source *val = feed->val_source;
    int64_t held_out = images_count(val ? val->images : train) / (val ? 1 : 10);
    if (!options_given(set, "val-steps") && held_out) o->val_steps = (held_out + o->batch - 1) / o->batch;
    return OK;
}

/* ---- batches ---- */

/* Sources from files are open by now. */
static Status open_drawn(const FeedOptions *o, const char *data, void **source) {
    (void)o;
    (void)data;
    *source = memory_allocate(sizeof(Source));
    return OK;
}

static int64_t rows(const void *source) {
    const Source *s = source;
    return s->images ? images_count(s->images) : DRAWN_PICTURES;
}

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    const Source *s = source;
    const Config *c = &o->session->config;
    const ImageProcessor *p = &c->processor;
    if (!s->images)
        return loader_open_drawn(part, &(DrawnPictures){p->height, p->channels, c->vocab, 0}, loader);
    const PictureOptions pictures = {.source = s->images,
                                     .processor = *p,
                                     .augmentation = part->shuffle ? &s->augmentation : NULL,
                                     .mixed = part->first || part->length,
                                     .once = !part->shuffle,
                                     .broken = s->broken};
    return loader_open_pictures(part, &pictures, loader);
}

static void print(const void *source, const Session *session) {
    printf("%" PRId64 " pictures in %" PRId64 " classes\n", rows(source), session->config.vocab);
}

static void record(const void *source, JsonWriter *w) {
    json_member_integer(w, "data_pictures", rows(source));
}

/* A sample for the fingerprint: the class, and the size if all pictures have the same size. Synthetic
 * pictures are always the same. */
static Status sample(const void *source, int64_t row, int32_t *facts, int64_t *length) {
    const ImageSource *images = ((const Source *)source)->images;
    *length = images ? 4 : 0;
    if (!images) return OK;
    facts[0] = images_label(images, row);
    facts[1] = (int32_t)images_height(images);
    facts[2] = (int32_t)images_width(images);
    facts[3] = (int32_t)images_channels(images);
    return OK;
}

static char *skipped(const void *source, int64_t index) {
    BrokenPictures *broken = ((const Source *)source)->broken;
    return broken && index < broken_count(broken) ? broken_message(broken, index) : NULL;
}

static const Command commands[] = {
    {.selector = "classify",
     .reads = "attention-map skip-broken workers json batch",
     .run = classify_pictures},
    {.selector = "eval", .reads = "skip-broken workers json batch", .run = evaluate_pictures},
    {.selector = "embed",
     .reads = "output pooling workers batch",
     .check = embed_check,
     .run = embed_pictures},
    {0},
};

const TaskRow task_pictures = {.trains = TASK_CLASS,
                               .models = "a vision Transformer",
                               .train = &pictures_train,
                               .infer = &pictures_infer,
                               .reads = "stochastic-depth label-smoothing",
                               .commands = commands,
                               .begin = begin,
                               .batches = {.rows_name = "pictures",
                                           .held = PICTURES_HELD,
                                           .slow = true,
                                           .open = open_drawn,
                                           .rows = rows,
                                           .make = make,
                                           .print = print,
                                           .record = record,
                                           .sample = sample,
                                           .skipped = skipped,
                                           .close = close_source}};
