/* wordpiece: BERT's tokenizer (Devlin et al. 2019; the released code's BasicTokenizer and
 * WordpieceTokenizer). A text is cleaned of control characters, cut at spaces and around Chinese characters,
 * decomposed (NFD) and freed of its accents, lower-cased, and cut around punctuation. A word is then cut
 * into the longest known parts from the left, all but the first with "##" before them; a word that cannot be
 * is the unknown token. Bytes that are not UTF-8 count as nothing. Categories and decompositions are
 * utf8proc's. Those of Hugging Face's tokenizers (0.23) are about Unicode 8's. Punctuation that is newer,
 * such as U+061D, U+2E43 and U+1E95E, cuts no words there, and newer accents and format characters stay in
 * them. So 503 code points have other ids here where a text is lower-cased, and 119 where it is not. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

#define WORDPIECE_PREFIX "##"
enum { WORD_CHARACTERS = 100 }; // of a word; a longer one is unknown

typedef struct WordPiece WordPiece;

typedef struct {
    bool lower, strip_accents, chinese; // what is done to the text
} WordPieceRule;

/* Fills an empty tokenizer: `texts` are its tokens by id. ERROR_FORMAT for one that comes twice or is too
 * long, and where "[UNK]" is missing. `path` is for messages. */
CHECKED Status wordpiece_build(Tokenizer *tokenizer, const char *const *texts, int64_t count,
                               WordPieceRule rule, const char *path);
/* Words are not cut into this token any more, which is not of the vocabulary itself. */
void wordpiece_hide(Tokenizer *tokenizer, const char *text);
void wordpiece_free(WordPiece *wordpiece); // NULL is fine
WordPieceRule wordpiece_rule(const Tokenizer *tokenizer);

/* Appends the ids of the piece at the cursor, which moves behind it: the spaces there and the run of other
 * bytes behind them. */
CHECKED Status wordpiece_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list);
/* The same of a whole stretch of text. */
CHECKED Status wordpiece_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                                        TokenList *list);
/* What a text is before it is cut: cleaned, decomposed, lower-cased. It lives until the next call. */
const uint8_t *wordpiece_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                                   int64_t *count);

/* ---- wordpiece_load.c: fills an empty tokenizer ---- */

/* From a vocab.txt, a token in each line; `config` is the tokenizer_config.json beside it, or NULL. */
CHECKED Status wordpiece_load(Tokenizer *tokenizer, const char *path, const char *unused,
                              const json_t *config);
/* From a parsed tokenizer.json; `path` is for messages. */
CHECKED Status wordpiece_load_json(Tokenizer *tokenizer, const json_t *root, const char *path);
