/* tokenizer_save: writes a tokenizer's files and its tokenizer_config.json into a folder that exists
 * (tokenizer.h says which). */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

CHECKED Status tokenizer_save_bytes(const Tokenizer *tokenizer, const char *folder);
CHECKED Status tokenizer_save_bpe(const Tokenizer *tokenizer, const char *folder);
CHECKED Status tokenizer_save_wordpiece(const Tokenizer *tokenizer, const char *folder);
