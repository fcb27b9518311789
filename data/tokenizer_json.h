/* tokenizer_json: shared by the readers of tokenizers' JSON files. The caller ends with json_decref. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

enum { TOKENIZER_FILE_LIMIT = 64 << 20 }; // bytes

/* Reads a JSON object of at most TOKENIZER_FILE_LIMIT bytes. */
CHECKED Status tokenizer_json_read(const char *path, json_t **root);

/* The same for a tokenizer_config.json, whose numbers are not used. */
CHECKED Status tokenizer_config_read(const char *path, json_t **root);

/* Whether the value is this string. */
bool json_is_text(const json_t *value, const char *text);

/* Whether a feature is off: absent, null, false, 0, "" or []. */
bool json_is_off(const json_t *object, const char *name);

/* Refuses a key of `object`, if it is an object, that is not among `keys` (ended by NULL). `what` names the
 * object and `path` the file in messages. */
CHECKED Status json_check_keys(const json_t *object, const char *const *keys, const char *path,
                               const char *what);

/* A flag of an object; `otherwise` if it is null or absent. */
CHECKED Status json_read_flag(const json_t *object, const char *name, bool otherwise, const char *path,
                              bool *flag);
