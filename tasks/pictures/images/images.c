#include "base/directories.h"
#include "base/memory.h"
#include "tasks/pictures/images/images_internal.h"
#include "tasks/pictures/images/labels.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

/* The contents of a path. */
typedef struct {
    PathList idx;     // IDX files of pictures
    PathList cifar;   // binary files
    bool fine, found; // fine: `cifar` is CIFAR-100; found: one of the files exists
} Holding;

static bool named(const char *path, const char *a, const char *b) {
    const char *name = path_name(path);
    return strstr(name, a) || (b && strstr(name, b));
}

static void hold(Holding *h, const char *path, ImagePart part, bool alone) {
    const char *name = path_name(path);
    bool test = named(path, "t10k", "test");
    if (strstr(name, "images-idx3") || strstr(name, "images.idx3")) {
        h->found = true;
        if (alone || test == (part == IMAGES_TEST)) path_list_add(&h->idx, memory_text(path));
    }
    bool ten = strncmp(name, "data_batch_", 11) == 0 || strcmp(name, "test_batch.bin") == 0;
    bool hundred = strcmp(name, "train.bin") == 0 || strcmp(name, "test.bin") == 0;
    if (!path_ends_with(name, ".bin") || (!ten && !hundred)) return;
    h->found = true;
    h->fine = hundred;
    if (alone || test == (part == IMAGES_TEST)) path_list_add(&h->cifar, memory_text(path));
}

static void holding_free(Holding *h) {
    path_list_free(&h->idx);
    path_list_free(&h->cifar);
}

/* Nothing is recorded for a folder of pictures. */
static Status look(const char *path, ImagePart part, Holding *h) {
    PathKind kind;
    CLOSED_BY(path_list_free) PathList entries = {0};
    *h = (Holding){0};
    TRY(path_kind(path, &kind));
    if (kind == PATH_ABSENT) return fail(ERROR_FILE, "there is no file or folder %s", path);
    if (kind == PATH_FILE) {
        hold(h, path, part, true);
        if (h->found) return OK;
        return fail(ERROR_FORMAT, "%s: not pictures: a folder of class folders, IDX or CIFAR files", path);
    }
    TRY(directory_list(path, &entries));
    for (int64_t i = 0; i < entries.count; i++) hold(h, entries.paths[i], part, false);
    return OK;
}

static Status open_holding(const char *path, ImagePart part, const char *cache, const Holding *h,
                           ImageSource *s) {
    if (h->idx.count > 1)
        return fail(ERROR_USAGE, "%s holds both %s and %s; name one", path, path_name(h->idx.paths[0]),
                    path_name(h->idx.paths[1]));
    if (h->idx.count) return images_open_idx(h->idx.paths[0], s);
    if (h->cifar.count) return images_open_cifar(&h->cifar, h->fine, s);
    if (h->found)
        return fail(ERROR_FILE, "%s holds no pictures for %s", path,
                    part == IMAGES_TEST ? "testing" : "training");
    return images_open_folder(path, cache, s);
}

Status images_open(const char *path, ImagePart part, const char *cache, ImageSource **source) {
    CLOSED_BY(holding_free) Holding holding = {0};
    *source = NULL;
    TRY(look(path, part, &holding));
    ImageSource *s = memory_allocate(sizeof *s);
    Status status = open_holding(path, part, cache, &holding, s);
    if (status)
        images_close(s);
    else
        labels_make_unique(s->class_names, s->classes);
    *source = status ? NULL : s;
    return status;
}

Status images_open_files(const char *path, ImageSource **source) {
    ImageSource *s = memory_allocate(sizeof *s);
    Status status = images_open_unnamed(path, s);
    *source = status ? NULL : s;
    if (status) images_close(s);
    return status;
}

Status images_have_test(const char *path, bool *have) {
    CLOSED_BY(holding_free) Holding holding = {0};
    *have = false;
    TRY(look(path, IMAGES_TEST, &holding));
    *have = holding.idx.count || holding.cifar.count;
    return OK;
}

void images_close(ImageSource *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->classes; i++) memory_free(s->class_names[i]);
    memory_free(s->class_names);
    memory_free(s->labels);
    memory_free(s->path);
    memory_free(s->pixels);
    memory_free(s->files.root);
    memory_free(s->files.text);
    memory_free(s->files.files);
    memory_free(s);
}

/* ---- counts, sizes and classes ---- */

int64_t images_count(const ImageSource *s) {
    return s->count;
}
int64_t images_classes(const ImageSource *s) {
    return s->classes;
}
const char *images_class_name(const ImageSource *s, int64_t label) {
    return s->class_names[label];
}
int32_t images_label(const ImageSource *s, int64_t index) {
    return s->labels[index];
}
int64_t images_height(const ImageSource *s) {
    return s->height;
}
int64_t images_width(const ImageSource *s) {
    return s->width;
}
int64_t images_channels(const ImageSource *s) {
    return s->channels;
}

char *images_name(const ImageSource *s, int64_t index) {
    if (!s->pixels && !s->files.root) return memory_text(s->files.files[index].name);
    if (!s->pixels) {
        OWNED char *folder = path_join(s->files.root, s->files.files[index].folder);
        return path_join(folder, s->files.files[index].name);
    }
    size_t room = strlen(s->path) + 40;
    char *name = memory_allocate(room);
    snprintf(name, room, "%s, picture %lld", s->path, (long long)index);
    return name;
}

/* Converts pixels of 3 channels to 1, or of 1 to 3. */
static void convert(const uint8_t *from, int64_t count, int64_t channels, uint8_t *to) {
    for (int64_t i = 0; i < count && channels == 1; i++, from += IMAGE_CHANNELS) *to++ = image_grey(from);
    for (int64_t i = 0; i < count && channels != 1; i++, to += IMAGE_CHANNELS)
        memset(to, from[i], IMAGE_CHANNELS);
}

Status images_read(const ImageSource *s, int64_t index, int64_t channels, Image *image) {
    if (!s->pixels) {
        OWNED char *path = images_name(s, index);
        return image_read_file(path, channels, image);
    }
    int64_t count = s->height * s->width;
    const uint8_t *pixels = s->pixels + index * count * s->channels;
    *image = (Image){memory_allocate((size_t)(count * channels)), s->height, s->width, channels};
    if (channels == s->channels)
        memcpy(image->pixels, pixels, (size_t)(count * channels));
    else
        convert(pixels, count, channels, image->pixels);
    return OK;
}
