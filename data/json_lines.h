/* json_lines: a text of which each line is a JSON object. */
#pragma once

#include "base/status.h"

#include <jansson.h>

/* Takes a line's object; what it refuses is reported with the file and the line. */
typedef Status (*JsonLine)(void *context, const json_t *object);

/* Hands on each line's object; lines that are empty are passed over. ERROR_FORMAT for one that holds
 * something else. */
CHECKED Status json_lines_read(const char *path, JsonLine take, void *context);

/* The text under a key; ERROR_FORMAT where there is none. */
CHECKED Status json_line_text(const json_t *object, const char *key, const char **text, int64_t *length);
