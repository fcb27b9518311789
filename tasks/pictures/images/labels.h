/* labels: the names of a model's classes: "id2label" in its folder's config.json. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct {
    char **names;  // (count)
    int64_t count; // 0: the classes have no names
} Labels;

/* Makes untrusted names safe and unique: control characters become '?', and the second of equal names becomes
 * "name (2)". May replace names[i]. */
void labels_make_unique(char **names, int64_t count);

/* Reads the names, made unique; none if the file has none. ERROR_FORMAT names what is malformed. */
CHECKED Status labels_read(const char *folder, Labels *labels);
/* Copies the names. */
void labels_set(Labels *labels, const char *const *names, int64_t count);
void labels_free(Labels *labels);

/* The name of class `label`; without names LABEL_3, as in transformers. */
enum { LABEL_TEXT = 32 };
const char *labels_name(const Labels *labels, int64_t label, char text[LABEL_TEXT]);
