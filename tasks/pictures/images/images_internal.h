/* images_internal: shared by the kinds of sources. */
#pragma once

#include "tasks/pictures/images/images.h"

#include "base/files.h"
#include "base/memory.h"

/* The files of a folder. */
typedef struct {
    char *root;     // the folder; NULL: names are paths
    char *text;     // the text of the list; `folder` and `name` point into it
    int64_t length; // length of `text`
    struct {
        const char *folder, *name; // root/folder/name
    } * files;                     // (count of the source)
    int64_t room;
} ImageFiles;

struct ImageSource {
    int64_t count, classes;
    int64_t height, width, channels; // size of every picture; 0: sizes differ
    int32_t *labels;                 // (count)
    int64_t label_room;
    char **class_names; // (classes)
    int64_t class_room;
    char *path;       // file of the pictures in memory, for messages
    uint8_t *pixels;  // (count, height, width, channels), or NULL
    ImageFiles files; // used if pixels is NULL
};

/* Each function fills an empty source. On an error the caller frees it with images_close. */
CHECKED Status images_open_folder(const char *path, const char *cache, ImageSource *source);
CHECKED Status images_open_unnamed(const char *path, ImageSource *source);
CHECKED Status images_open_idx(const char *path, ImageSource *source); // a file of pictures
CHECKED Status images_open_cifar(const PathList *files, bool fine, ImageSource *source);

static inline void images_add_class(ImageSource *s, const char *name, int64_t length) {
    s->class_names = memory_grow(s->class_names, &s->class_room, s->classes + 1, sizeof *s->class_names);
    s->class_names[s->classes++] = memory_text_slice(name, (size_t)length);
}
