/* tokens_text: texts become tokens, which may be kept as a shard. */
#pragma once

#include "data/shard.h"
#include "data/tokenizer.h"

/* How, and where to keep it: as data/tokens.h's TokenOptions say. */
typedef struct {
    Tokenizer *tokenizer;
    const char *field; // or NULL
    const char *cache; // or NULL
} TokenizeOptions;

/* Fills the all-zero `part` with the tokens of the texts, as data/tokens.h says: from the shard that the
 * options' folder keeps if it fits, else anew. `name` is for messages and the kept shard; `bytes` gets the
 * texts' size, or -1 for JSON lines. ERROR_USAGE without a tokenizer. What a failure leaves in `part`,
 * token_part_close frees. */
CHECKED Status tokenize_texts(const PathList *texts, const char *name, const TokenizeOptions *options,
                              TokenPart *part, int64_t *bytes);
