/* nearest: suggests a name for a mistyped one. */
#pragma once

/* The name with the smallest edit distance to `text` (Levenshtein 1966); ties go to the first. NULL if
 * more than a third of its letters plus one, or more than half of them, would have to change. */
const char *nearest_name(const char *text, const char *const names[], int count);

/* "; did you mean '--name'?" with the given quotes, such as "'--" and "'"; "" if no name is near. */
typedef struct {
    char text[128];
} Hint;

Hint nearest_hint(const char *text, const char *open, const char *close, const char *const names[],
                  int count);
