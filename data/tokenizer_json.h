/* tokenizer_json: what the readers of tokenizers' JSON files share. The caller ends with json_decref. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

enum { TOKENIZER_FILE_LIMIT = 64 << 20 }; // bytes

/* Reads a JSON object of at most TOKENIZER_FILE_LIMIT bytes. */
CHECKED Status tokenizer_json_read(const char *path, json_t **root);

/* The same of a tokenizer_config.json, of which no number is wanted. */
CHECKED Status tokenizer_config_read(const char *path, json_t **root);

/* Is it a string, and this one? */
bool json_is_text(const json_t *value, const char *text);

/* Absent, null, false, 0, "" or []: a feature that is off. */
bool json_is_off(const json_t *object, const char *name);

/* Refuses a key of `object`, if it is one, that is not among `keys` (NULL ends them). `what` it is and `path`
 * are for messages. */
CHECKED Status json_check_keys(const json_t *object, const char *const *keys, const char *path,
                               const char *what);

/* A flag of an object; null and absent mean `otherwise`. */
CHECKED Status json_read_flag(const json_t *object, const char *name, bool otherwise, const char *path,
                              bool *flag);
