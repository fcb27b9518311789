/* wordpiece: BERT's tokenizer (Devlin et al. 2019; the released code's BasicTokenizer and
 * WordpieceTokenizer). A text is cleaned of control characters, cut at spaces and around Chinese characters,
 * decomposed (NFD) and freed of its accents, lower-cased, and cut around punctuation. A word is then cut
 * into the longest known parts from the left, all but the first with "##" before them; a word that cannot be
 * is the unknown token. Bytes that are not UTF-8 count as nothing. Categories and decompositions are
 * utf8proc's. */
#ifndef DATA_WORDPIECE_H
#define DATA_WORDPIECE_H

#include "data/tokenizer_internal.h"

#define WORDPIECE_PREFIX "##"
enum { WORD_CHARACTERS = 100 }; // of a word; a longer one is unknown

typedef struct {
    bool lower, strip_accents, chinese; // what is done to the text
} WordPieceRule;

/* Fills the tokenizer: `texts` are its tokens by id. ERROR_FORMAT for one that comes twice or is too long,
 * and where "[UNK]" is missing. `path` is for messages. */
CHECKED Status wordpiece_build(Tokenizer *tokenizer, const char *const *texts, int64_t count,
                               WordPieceRule rule, const char *path);
void wordpiece_free(WordPiece *wordpiece);
WordPieceRule wordpiece_rule(const Tokenizer *tokenizer);

/* The end of the piece at `from`: after the spaces there and the run of other bytes behind them. */
int64_t wordpiece_end(const uint8_t *text, int64_t length, int64_t from);
/* Appends the ids of one such piece. */
CHECKED Status wordpiece_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);

/* ---- wordpiece_load.c ---- */

/* A vocab.txt, a token in each line; `config_path`, if such a file exists, is its tokenizer_config.json. */
CHECKED Status load_vocab_lines(Tokenizer *tokenizer, const char *path, const char *config_path);

#endif
