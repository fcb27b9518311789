#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 }; // characters that are compared

static int minimum(int a, int b) {
    return a < b ? a : b;
}

static int distance(const char *a, const char *b) {
    int columns = (int)strnlen(b, LONGEST), row[LONGEST + 1];
    for (int j = 0; j <= columns; j++) row[j] = j;
    for (int i = 0; i < LONGEST && a[i]; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 0; j < columns; j++) {
            int replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = minimum(replaced, minimum(row[j], row[j + 1]) + 1);
        }
    }
    return row[columns];
}

/* The name with the smallest edit distance to `text` (Levenshtein 1966); ties go to the first. NULL if
 * more than a third of its letters plus one, or more than half of them, would have to change. */
static const char *nearest_name(const char *text, const char *const names[], int count) {
    const char *nearest = NULL;
    int length = (int)strnlen(text, LONGEST), least = minimum(length / 3 + 1, length / 2) + 1;
    for (int i = 0; i < count; i++) {
        int d = distance(text, names[i]);
        if (d < least) {
            least = d;
            nearest = names[i];
        }
    }
    return nearest;
}

Hint nearest_hint(const char *text, const char *open, const char *close, const char *const names[],
                  int count) {
    Hint hint = {""};
    const char *nearest = nearest_name(text, names, count);
    if (nearest) snprintf(hint.text, sizeof hint.text, "; did you mean %s%.80s%s?", open, nearest, close);
    return hint;
}
