/* lines: a text, mapped and cut into lines; and texts with a JSON object on each line. */
#pragma once

#include "base/files.h"

#include <jansson.h>

typedef struct {
    const char *text; // in the mapped file, without its end ("\n" or "\r\n")
    int64_t length;
} Line;

typedef struct {
    Line *list;
    int64_t count;
    FileMap map;
} Lines;

CHECKED Status lines_open(const char *path, Lines *lines);
void lines_close(Lines *lines); // accepts all-zero lines

/* ---- JSON lines ---- */

/* Receives a line's object; errors it returns are reported with file and line. */
typedef Status (*JsonLine)(void *context, const json_t *object);

/* Calls `take` for each line's object; empty lines are skipped. ERROR_FORMAT for a line with anything
 * else. */
CHECKED Status json_lines_read(const char *path, JsonLine take, void *context);

/* The text of a key; ERROR_FORMAT if there is none. */
CHECKED Status json_line_text(const json_t *object, const char *key, const char **text, int64_t *length);
