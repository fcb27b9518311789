/* tokenizer_config: the tokens in a tokenizer_config.json and a special_tokens_map.json, and those that a
 * tokenizer.json adds around a text. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

/* The tokens that a config adds to a vocabulary, in the form of a tokenizer.json's "added_tokens". If the
 * config lists none, those of `names` (ended by NULL) that are in the vocabulary, as special tokens. The
 * caller ends with json_decref. */
CHECKED Status tokenizer_config_added(const json_t *config, const json_t *vocab, const char *const *names,
                                      const char *path, json_t **added);

/* Sets the special tokens that the config names (beginning, end and so on), if they are among the added
 * ones. */
void tokenizer_config_special(Tokenizer *tokenizer, const json_t *config);

/* See tokenizer_names: the names in the config, or else in the map; if the config's class has no default
 * tokens, names in neither are none. NULL without a config. */
json_t *tokenizer_config_names(const json_t *config, const json_t *map);

/* The key of a special token in a config; `word` selects WordPiece's. */
const char *tokenizer_config_key(SpecialToken token, bool word);

/* The tokens that a tokenizer.json's post_processor adds around a text: fills the tokenizer's `before` and
 * `after`. ERROR_FORMAT, naming the culprit, if something is not supported. */
CHECKED Status tokenizer_read_post(Tokenizer *tokenizer, const json_t *post, const char *path);
