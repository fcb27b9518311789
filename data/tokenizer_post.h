/* tokenizer_post: the tokens that a tokenizer.json's post_processor adds around a text. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

/* Fills the tokenizer's `before` and `after`. ERROR_FORMAT, naming the culprit, if something is not
 * supported. */
CHECKED Status tokenizer_read_post(Tokenizer *tokenizer, const json_t *post, const char *path);
