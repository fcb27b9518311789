/* tokenizer_config: what a tokenizer_config.json and a special_tokens_map.json say of tokens. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

/* The tokens that a config adds to a vocabulary, as a tokenizer.json's "added_tokens" lists them; without a
 * config that lists any, those of `names` (NULL ends them) that are in the vocabulary, as special ones. The
 * caller ends with json_decref. */
CHECKED Status tokenizer_config_added(const json_t *config, const json_t *vocab, const char *const *names,
                                      const char *path, json_t **added);

/* Takes the tokens that the config names as the beginning, the end and so on, of those that are added. */
void tokenizer_config_special(Tokenizer *tokenizer, const json_t *config);

/* tokenizer_names: what the config says, or else the map; where the config's class is one that has no tokens of its own,
 * those that neither names are none. NULL where there is no config. */
json_t *tokenizer_config_names(const json_t *config, const json_t *map);

/* The key of a special token in a config: `word` for those of a WordPiece. */
const char *tokenizer_config_key(SpecialToken token, bool word);
