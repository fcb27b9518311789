/* tokenizer_json: what the readers of tokenizers' JSON files share. */
#ifndef DATA_TOKENIZER_JSON_H
#define DATA_TOKENIZER_JSON_H

#include "data/tokenizer_internal.h"

#include <jansson.h>

enum { TOKENIZER_FILE_LIMIT = 64 << 20 }; // bytes

/* Reads a tokenizer_config.json, an object, of which no number is wanted; the caller ends with json_decref. */
CHECKED Status load_config(const char *path, json_t **root);

/* Is it a string, and this one? */
bool json_is_text(const json_t *value, const char *text);

/* A parsed tokenizer.json whose model is a WordPiece. */
CHECKED Status load_wordpiece_json(Tokenizer *tokenizer, const json_t *root, const char *path);

#endif
