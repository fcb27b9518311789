/* tokenizer_json: what the readers of tokenizers' JSON files share. The caller ends with json_decref. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

/* Reads a JSON object of at most TOKENIZER_FILE_LIMIT bytes. */
CHECKED Status tokenizer_json_read(const char *path, json_t **root);

/* The same of a tokenizer_config.json, of which no number is wanted. */
CHECKED Status tokenizer_config_read(const char *path, json_t **root);

/* Is it a string, and this one? */
bool json_is_text(const json_t *value, const char *text);
