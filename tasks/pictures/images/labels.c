#include "tasks/pictures/images/labels.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/tables.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */ };

/* Names in use, each with the next suffix to try. */
typedef struct {
    char *key;
    int64_t value;
} Taken;

/* `name`, or `name (2)`, `name (3)`, ... if it is in use. Frees `name`. */
static char *unique_name(char *name, Taken **taken) {
    if (shgeti(*taken, name) < 0) return name;
    size_t room = strlen(name) + LABEL_TEXT;
    char *numbered = memory_allocate(room);
    do snprintf(numbered, room, "%s (%" PRId64 ")", name, shget(*taken, name)++);
    while (shgeti(*taken, numbered) >= 0);
    memory_free(name);
    return numbered;
}

void labels_make_unique(char **names, int64_t count) {
    Taken *taken = NULL;
    sh_new_strdup(taken);
    for (int64_t i = 0; i < count; i++) {
        utf8_tame(names[i], (int64_t)strlen(names[i]), false);
        names[i] = unique_name(names[i], &taken);
        shput(taken, names[i], 2);
    }
    shfree(taken);
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
        labels->names[i] = memory_text(name);
    }
    labels_make_unique(labels->names, count);
    return OK;
}

static Status read_file(const char *path, Labels *labels) {
    json_auto_t *root = NULL;
    TRY(json_read(path, FILE_LIMIT, &root));
    const json_t *object = json_object_get(root, "id2label");
    return json_is_object(object) ? read_names(object, path, labels) : OK;
}

Status labels_read(const char *folder, Labels *labels) {
    OWNED char *path = path_join(folder, "config.json");
    *labels = (Labels){0};
    Status status = read_file(path, labels);
    if (status) labels_free(labels);
    return status;
}

void labels_set(Labels *labels, const char *const *names, int64_t count) {
    labels_free(labels);
    labels->names = memory_array((size_t)count, sizeof *labels->names);
    labels->count = count;
    for (int64_t i = 0; i < count; i++) labels->names[i] = memory_text(names[i]);
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
