#include "tasks/pictures/images/labels.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */ };

/* A copy that a terminal shows: names come from strangers' folders. */
static char *tamed(const char *name) {
    char *copy = memory_text(name);
    utf8_tame(copy, (int64_t)strlen(copy), false);
    return copy;
}

static Status read_names(const json_t *object, const char *path, Labels *labels) {
    int64_t count = (int64_t)json_object_size(object);
    labels->names = memory_array((size_t)count, sizeof *labels->names);
    labels->count = count;
    for (int64_t i = 0; i < count; i++) {
        char key[LABEL_TEXT];
        snprintf(key, sizeof key, "%" PRId64, i);
        const char *name = json_string_value(json_object_get(object, key));
        if (!name)
            return fail(ERROR_FORMAT, "%s: \"id2label\" names %" PRId64 " classes, but none is \"%s\"", path,
                        count, key);
        labels->names[i] = tamed(name);
    }
    return OK;
}

static Status read_file(const char *path, Labels *labels) {
    char *text;
    int64_t length;
    json_t *root;
    TRY(file_read(path, FILE_LIMIT, &text, &length));
    Status status = json_parse(text, length, path, &root);
    memory_free(text);
    if (status) return status;
    const json_t *object = json_object_get(root, "id2label");
    if (json_is_object(object)) status = read_names(object, path, labels);
    json_decref(root);
    return status;
}

Status labels_read(const char *folder, Labels *labels) {
    char *path = path_join(folder, "config.json");
    *labels = (Labels){0};
    Status status = read_file(path, labels);
    memory_free(path);
    if (status) labels_free(labels);
    return status;
}

void labels_set(Labels *labels, const char *const *names, int64_t count) {
    labels_free(labels);
    labels->names = memory_array((size_t)count, sizeof *labels->names);
    labels->count = count;
    for (int64_t i = 0; i < count; i++) labels->names[i] = tamed(names[i]);
}

void labels_free(Labels *labels) {
    for (int64_t i = 0; i < labels->count; i++) memory_free(labels->names[i]);
    memory_free(labels->names);
    *labels = (Labels){0};
}

const char *labels_name(const Labels *labels, int64_t label, char text[LABEL_TEXT]) {
    if (labels && label < labels->count) return labels->names[label];
    snprintf(text, LABEL_TEXT, "LABEL_%" PRId64, label);
    return text;
}
