/* json_read: parses JSON from outside with jansson. Duplicate keys are refused. Messages name the file,
 * the line and the column. The caller validates the contents and releases them with json_decref. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

/* `name` is for messages; with NULL the text is one line, and the caller names it. ERROR_FORMAT if the
 * text is not JSON; *root is then NULL. */
CHECKED Status json_parse(const char *text, int64_t length, const char *name, json_t **root);

/* Reads a file of at most `limit` bytes (file_read) and parses it. */
CHECKED Status json_read(const char *path, int64_t limit, json_t **root);

/* The same for a file that may be absent: then *root is NULL. */
CHECKED Status json_read_optional(const char *path, int64_t limit, json_t **root);

/* The same as json_read, with all numbers read as reals, so that none overflows (transformers writes a
 * "model_max_length" of 1e30 with all digits). For files whose numbers are not used. */
CHECKED Status json_read_without_integers(const char *path, int64_t limit, json_t **root);
