/* labels: the names of a model's classes, by "id2label" of its folder's config.json. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct {
    char **names;  // (count)
    int64_t count; // 0: nobody has named them
} Labels;

/* None where the file names none. What a terminal would obey becomes '?'. ERROR_FORMAT says what is
 * malformed. */
CHECKED Status labels_read(const char *folder, Labels *labels);
/* Copies of the names. */
void labels_set(Labels *labels, const char *const *names, int64_t count);
void labels_free(Labels *labels);

/* What class `label` is called, also where nobody has named it: LABEL_3, as transformers does. */
enum { LABEL_TEXT = 32 };
const char *labels_name(const Labels *labels, int64_t label, char text[LABEL_TEXT]);
