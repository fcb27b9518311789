/* tokens_text: tokenizes texts and caches the tokens as a shard. */
#pragma once

#include "data/shard.h"
#include "data/tokenizer.h"

/* How to tokenize, and where to cache: as in TokenOptions of data/tokens.h. */
typedef struct {
    Tokenizer *tokenizer;
    const char *field; // or NULL
    const char *cache; // or NULL
} TokenizeOptions;

/* Fills the all-zero `part` with the tokens of the texts, as data/tokens.h describes: from the cached shard
 * if it fits, else by tokenizing. `name` is for messages and the cached shard; `bytes` is set to the texts'
 * size, or -1 for JSON lines. ERROR_USAGE without a tokenizer. After an error, token_part_close frees
 * `part`. */
CHECKED Status tokenize_texts(const PathList *texts, const char *name, const TokenizeOptions *options,
                              TokenPart *part, int64_t *bytes);
