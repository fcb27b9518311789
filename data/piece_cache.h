/* piece_cache: caches the ids of short pieces. */
#pragma once

#include "data/tokenizer_state.h"

typedef void EncodePiece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* Appends the ids of a piece, from the cache or else from `encode`. */
void piece_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, EncodePiece *encode,
                  TokenList *list);
