/* json_lines: a text with a JSON object on each line. */
#pragma once

#include "base/status.h"

#include <jansson.h>

/* Receives a line's object; errors it returns are reported with file and line. */
typedef Status (*JsonLine)(void *context, const json_t *object);

/* Calls `take` for each line's object; empty lines are skipped. ERROR_FORMAT for a line with anything
 * else. */
CHECKED Status json_lines_read(const char *path, JsonLine take, void *context);

/* The text of a key; ERROR_FORMAT if there is none. */
CHECKED Status json_line_text(const json_t *object, const char *key, const char **text, int64_t *length);
