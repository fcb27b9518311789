/* tokenizer_added: added tokens, which are searched in a text before anything else is done to it, as in
 * Hugging Face's tokenizers: the leftmost match, and the longest of these. */
#pragma once

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char *text;
    int64_t length; // bytes
    int32_t id;
    bool special;        // represents no text: searched only on request
    bool single_word;    // only if no letter, digit or underscore is adjacent
    bool lstrip, rstrip; // absorbs spaces before it, after it
    bool normalized;     // searched in the normalized text, not in the text itself
} AddedToken;

/* All-zero: no tokens. */
typedef struct {
    AddedToken *tokens; // (count) sorted by text once added_sort has been called
    int64_t count, room;
    int64_t first[257]; // start of the tokens with each first byte
    int lead;           // the byte that all of them begin with, or -1
} AddedTokens;

/* A match: text[begin, end). The search continues at `next`, which is before `end` if the token has absorbed
 * spaces after it: these may be tokens, too. */
typedef struct {
    const AddedToken *token; // NULL: none
    int64_t begin, end, next;
} AddedMatch;

/* Reads an entry of a tokenizer.json's "added_tokens" or a tokenizer_config.json's "added_tokens_decoder";
 * its text is a copy. `path` is for messages. */
CHECKED Status added_read(const json_t *entry, int32_t id, const char *path, AddedToken *token);

/* ERROR_FORMAT for a longer one: in a text of near matches each byte is compared this many times. */
enum { ADDED_MOST = 256 };
CHECKED Status added_check(int64_t length, const char *path);

/* Hashes everything that affects where the token matches. */
uint64_t added_hash(const AddedToken *token, uint64_t hash);

void added_put(AddedTokens *added, AddedToken token); // takes ownership of the token's text
void added_sort(AddedTokens *added);                  // call after the last added_put
void added_free(AddedTokens *added);

/* The first token in text[from, length); it may absorb spaces from `taken` on, where the previous match
 * ended. Without `special`, special tokens are skipped, and *passed is set to the first of them (unchanged if
 * there is none). */
AddedMatch added_find(const AddedTokens *added, const uint8_t *text, int64_t length, int64_t from,
                      int64_t taken, bool special, const AddedToken **passed);
