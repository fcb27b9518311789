/* wordpiece: BERT's tokenizer (Devlin et al. 2019; the released code's BasicTokenizer and
 * WordpieceTokenizer). A text is cleaned of control characters, split at spaces and around Chinese
 * characters, decomposed (NFD), stripped of accents, lower-cased, and split around punctuation. A word is
 * then split into the longest known parts from the left, all but the first prefixed with "##"; a word that
 * cannot be split is the unknown token. Invalid UTF-8 is dropped. Categories and decompositions are
 * utf8proc's; those of Hugging Face's tokenizers (0.23) are about Unicode 8's. Newer punctuation, such as
 * U+061D, U+2E43 and U+1E95E, does not split words there, and newer accents and format characters stay. So
 * 503 code points have other ids here if a text is lower-cased, and 119 if it is not. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

#define WORDPIECE_PREFIX "##"
enum { WORD_CHARACTERS = 100 }; // characters of a word; longer words are unknown

typedef struct WordPiece WordPiece;

typedef struct {
    bool lower, strip_accents, chinese; // transformations of the text
} WordPieceRule;

/* Fills an empty tokenizer; `texts` are its tokens by id. ERROR_FORMAT for a duplicate or a token that is too
 * long, and if "[UNK]" is missing. `path` is for messages. */
CHECKED Status wordpiece_build(Tokenizer *tokenizer, const char *const *texts, int64_t count,
                               WordPieceRule rule, const char *path);
/* Words are no longer split into this token, which is not in the vocabulary itself. */
void wordpiece_hide(Tokenizer *tokenizer, const char *text);
void wordpiece_free(WordPiece *wordpiece); // accepts NULL
WordPieceRule wordpiece_rule(const Tokenizer *tokenizer);

/* Appends the ids of the piece at the cursor and moves the cursor past it: spaces and the run of other bytes
 * after them. */
CHECKED Status wordpiece_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list);
/* The same for a whole stretch of text. */
CHECKED Status wordpiece_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                                        TokenList *list);
/* A normalized text: cleaned, decomposed, lower-cased. Valid until the next call. */
const uint8_t *wordpiece_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                                   int64_t *count);

/* ---- wordpiece_load.c: fills an empty tokenizer ---- */

/* Loads a vocab.txt with one token per line; `config` is the tokenizer_config.json in the same folder, or
 * NULL. */
CHECKED Status wordpiece_load(Tokenizer *tokenizer, const char *path, const char *unused,
                              const json_t *config);
/* Loads a parsed tokenizer.json; `path` is for messages. */
CHECKED Status wordpiece_load_json(Tokenizer *tokenizer, const json_t *root, const char *path);
