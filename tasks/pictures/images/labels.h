/* labels: the names of a model's classes, by "id2label" of its folder's config.json. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct {
    char **names;  // (count)
    int64_t count; // 0: nobody has named them
} Labels;

/* Makes names from a stranger's file fit for a terminal and for a file that finds a class by its name: what a
 * terminal would obey becomes '?', and of equal names the second becomes "name (2)". May replace names[i]. */
void labels_tell_apart(char **names, int64_t count);

/* None where the file names none; told apart. ERROR_FORMAT says what is malformed. */
CHECKED Status labels_read(const char *folder, Labels *labels);
/* Copies of the names. */
void labels_set(Labels *labels, const char *const *names, int64_t count);
void labels_free(Labels *labels);

/* What class `label` is called, also where nobody has named it: LABEL_3, as transformers does. */
enum { LABEL_TEXT = 32 };
const char *labels_name(const Labels *labels, int64_t label, char text[LABEL_TEXT]);
