/* end_tokens: the tokens that end a text: "eos_token_id", an id or a list of ids, of a folder's
 * generation_config.json or, if that has none, of its config.json. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { END_TOKENS = 16 };
typedef struct {
    int32_t ids[END_TOKENS];
    int count; // 0: the tokenizer's end of text ends a text (data/tokenizer.h)
} EndTokens;

/* Reads the tokens; none if neither file has any. ERROR_FORMAT names what is malformed. */
CHECKED Status end_tokens_read(const char *folder, EndTokens *ends);

/* Writes generation_config.json if there are end tokens, or if `kept`, its previous content (data/kept.h),
 * has other keys. NULL: nothing. */
CHECKED Status end_tokens_write(const char *folder, const EndTokens *ends, const json_t *kept);

bool end_tokens_hold(const EndTokens *ends, int32_t token);

/* As JSON: an id, or a list. There must be at least one. */
enum { END_TOKENS_TEXT = END_TOKENS * 12 + 3 };
void end_tokens_text(const EndTokens *ends, char text[END_TOKENS_TEXT]);
