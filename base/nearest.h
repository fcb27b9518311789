/* nearest: suggests a name for a mistyped one. */
#pragma once

/* "; did you mean '--name'?" with the given quotes, such as "'--" and "'"; "" if no name is near. */
typedef struct {
    char text[128];
} Hint;

Hint nearest_hint(const char *text, const char *open, const char *close, const char *const names[],
                  int count);
