/* piece_cache: the ids of short pieces that a tokenizer has met before. */
#pragma once

#include "data/tokenizer_state.h"

typedef void EncodePiece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* Appends the ids of a piece, which `encode` finds unless they are remembered. */
void piece_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, EncodePiece *encode,
                  TokenList *list);
