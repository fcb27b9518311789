/* json_read: JSON from outside, parsed by jansson. A key that stands twice in an object is refused.
 * Messages name the file, the line and the column. The caller checks what the text holds, and ends with
 * json_decref. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

/* `name` is for messages; NULL: the text is one line, which the caller names. ERROR_FORMAT for what is not
 * JSON; *root is NULL then. */
CHECKED Status json_parse(const char *text, int64_t length, const char *name, json_t **root);

/* Reads a file of at most `limit` bytes (file_read) and parses it. */
CHECKED Status json_read(const char *path, int64_t limit, json_t **root);

/* The same for files of which no number is wanted: all of them are real ones, so that none is too large
 * (transformers writes a "model_max_length" of 1e30 with all its digits). */
CHECKED Status json_read_without_integers(const char *path, int64_t limit, json_t **root);
