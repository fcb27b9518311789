#include "tasks/pictures/train_pictures.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --val-data, or else the part for testing that the data come with. */
static Status open_validation(const TrainOptions *o, const char *cache, TrainPictures *p) {
    bool test = *o->val_data;
    if (!o->val_every || o->compare) return OK;
    if (!test) TRY(images_have_test(o->data, &test));
    if (!test) return OK;
    TRY(images_open(*o->val_data ? o->val_data : o->data, IMAGES_TEST, cache, &p->val));
    for (int64_t i = 0; i < images_classes(p->val); i++) {
        const char *name = images_class_name(p->val, i);
        if (i < images_classes(p->train) && strcmp(name, images_class_name(p->train, i)) == 0) continue;
        return fail(ERROR_FORMAT, "--val-data: class %" PRId64 ", %s, is not that of --data", i, name);
    }
    return OK;
}

/* A new model's channels, and what it normalizes by. */
static Status fit_model(const TrainPictures *p, Config *c) {
    int64_t channels = images_channels(p->train);
    if (channels) c->channels = c->processor.channels = channels;
    return images_measure(p->train, &c->processor);
}

/* A new head tells the classes of the data apart. */
static Status fit_head(const TrainPictures *p, bool vocab_given, Session *session) {
    int64_t classes = images_classes(p->train);
    const char **names = memory_array((size_t)classes, sizeof *names);
    for (int64_t i = 0; i < classes; i++) names[i] = images_class_name(p->train, i);
    labels_set(&session->labels, names, classes);
    memory_free(names);
    if (!vocab_given) session->config.vocab = classes;
    return config_validate(&session->config);
}

/* A model's head keeps its names: what is trained on is told apart by numbers. */
static void tell_names(const TrainPictures *p, const Labels *labels) {
    char text[LABEL_TEXT];
    for (int64_t i = 0; i < images_classes(p->train); i++) {
        const char *name = images_class_name(p->train, i), *own = labels_name(labels, i, text);
        if (i >= labels->count || strcmp(name, own) == 0) continue;
        fprintf(stderr,
                "train: classes are taken by their order: \"%s\" of --data is the model's \"%s\"; "
                "--new-head draws a head with the data's names\n",
                name, own);
        return;
    }
}

static Status open_sources(const TrainOptions *o, TrainPictures *p) {
    char *cache = *o->out ? path_join(o->out, "cache") : NULL;
    Status status = fail_at(images_open(o->data, IMAGES_TRAIN, cache, &p->train), "--data");
    if (!status) status = open_validation(o, cache, p);
    memory_free(cache);
    return status;
}

Status train_pictures_open(TrainOptions *o, const OptionSet *set, Session *session, TrainPictures *p) {
    Config *c = &session->config;
    *p = (TrainPictures){0};
    if (!c->architecture->patches || !*o->data) return OK;
    TRY(open_sources(o, p));
    if (!session->folder) TRY(fit_model(p, c));
    if (!session->folder || c->new_head) TRY(fit_head(p, o->sizes.vocab, session));
    int64_t classes = images_classes(p->train);
    if (classes > c->vocab)
        return fail(ERROR_USAGE,
                    "--data has %" PRId64 " classes, but the model tells only %" PRId64
                    " apart; --new-head draws a head for them",
                    classes, c->vocab);
    if (!o->quiet) tell_names(p, &session->labels);
    int64_t held_out = p->val ? images_count(p->val) : images_count(p->train) / 10;
    if (!options_given(set, "val-steps") && held_out) o->val_steps = (held_out + o->batch - 1) / o->batch;
    return OK;
}

void train_pictures_close(TrainPictures *p) {
    images_close(p->train);
    images_close(p->val);
    *p = (TrainPictures){0};
}
