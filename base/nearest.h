/* nearest: what somebody who mistyped a name most likely meant. */
#pragma once

/* The name with the smallest edit distance to `text` (Levenshtein 1966), the first of equals; NULL where more
 * than a third of its letters, and one, would have to change, or more than half: that is another word. */
const char *nearest_name(const char *text, const char *const names[], int count);

/* "; did you mean '--name'?" with quotes such as "'--" and "'", or "" where no name is near. */
typedef struct {
    char text[128];
} Hint;

Hint nearest_hint(const char *text, const char *open, const char *close, const char *const names[],
                  int count);
