/* tokenizer_added: the tokens that stand beside a tokenizer's own vocabulary and are looked for in a text
 * before anything else is done to it, as Hugging Face's tokenizers does: of those that begin first, the
 * longest. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char *text;
    int64_t length; // bytes
    int32_t id;
    bool special;        // stands for no text: looked for only where that is asked for
    bool single_word;    // only where no letter, digit or underscore is beside it
    bool lstrip, rstrip; // takes the spaces before it, behind it
    bool normalized;     // looked for in the normalized text, not in the text itself
} AddedToken;

/* All-zero: no tokens. */
typedef struct {
    AddedToken *tokens; // (count) by their texts once added_sort has been called
    int64_t count, room;
    int64_t first[257]; // where those that begin with each byte start
    int lead;           // the byte that they all begin with, or -1
} AddedTokens;

/* Where one was found: it stands for text[begin, end). The next is looked for from `next` on, which is before
 * `end` where the token has taken spaces behind it: they may be tokens, too. */
typedef struct {
    const AddedToken *token; // NULL: none
    int64_t begin, end, next;
} AddedMatch;

/* Reads one of a tokenizer.json's "added_tokens" or a tokenizer_config.json's "added_tokens_decoder"; its
 * text is a copy. `path` is for messages. */
CHECKED Status added_read(const json_t *entry, int32_t id, const char *path, AddedToken *token);

/* ERROR_FORMAT for a longer one: where a text nearly holds many, each of its bytes is compared with as many. */
enum { ADDED_MOST = 256 };
CHECKED Status added_check(int64_t length, const char *path);

/* What decides where a text holds it. */
uint64_t added_hash(const AddedToken *token, uint64_t hash);

void added_put(AddedTokens *added, AddedToken token); // takes the token's text over
void added_sort(AddedTokens *added);                  // when all are there
void added_free(AddedTokens *added);

/* The first token in text[from, length); it may take spaces from `taken` on, where the one before it ended.
 * Where `special` is off, the special ones are passed over, and *passed gets the first of them (and stays as
 * it was if there is none). */
AddedMatch added_find(const AddedTokens *added, const uint8_t *text, int64_t length, int64_t from,
                      int64_t taken, bool special, const AddedToken **passed);
