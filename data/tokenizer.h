/* tokenizer: text to token ids and back. Three kinds:
 *
 *   bytes       ids 0..255 are the bytes themselves
 *   BPE         GPT-2's byte-level byte-pair encoding (Radford et al. 2019; Sennrich, Haddow, Birch 2016):
 *               the text is cut into pieces by GPT-2's pattern, and in each piece the adjacent pair of
 *               lowest rank is merged until no known pair is left
 *   WordPiece   BERT's (Devlin et al. 2019): the text is cleaned, cut at spaces and punctuation,
 *               lower-cased, freed of accents, and each word cut into the longest known parts from the left
 *
 * Bytes and BPE encode any bytes, and decoding gives the same bytes back. On valid UTF-8 the ids are those
 * of the original (what is a letter or a number is looked up in PCRE2's tables: Unicode 14 in version
 * 10.42). A run of bytes that is not UTF-8 is a piece of its own, and a piece of over 4 MiB is cut. Text is
 * only text: "<|endoftext|>" written out in it is encoded letter by letter and never becomes the special
 * token.
 *
 * A tokenizer remembers pieces it has met, so it must not encode in two threads at once. */
#pragma once

#include "base/files.h"
#include "base/status.h"
#include "data/token.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Tokenizer Tokenizer;

/* Opens NULL or "bytes", or a folder, in which these are looked for in this order:
 *
 *   tokenizer_config.json with "fusebox_tokenizer": "bytes"   the byte tokenizer, as tokenizer_save marks it
 *   vocab.json and merges.txt                                 GPT-2's files
 *   tokenizer.json                                            Hugging Face's, if a byte-level BPE as
 *                                                             GPT-2's, or a WordPiece as BERT's
 *   vocab.txt                                                 BERT's; tokenizer_config.json may say
 *                                                             do_lower_case, strip_accents,
 *                                                             tokenize_chinese_chars
 *
 * The files are checked: every byte has its token, ids are 0..n-1 and each is used once, a merge's two sides
 * and its product are tokens, no merge comes twice. ERROR_FILE or ERROR_FORMAT otherwise. */
CHECKED Status tokenizer_open(const char *path, Tokenizer **tokenizer);
void tokenizer_free(Tokenizer *tokenizer);

/* Does `folder` hold a tokenizer's files, so that tokenizer_open would read them? */
CHECKED Status tokenizer_present(const char *folder, bool *present);

/* Writes tokenizer_config.json and, for BPE, vocab.json and merges.txt, or tokenizer.json if it has special
 * tokens; for WordPiece, vocab.txt. `folder` exists. */
CHECKED Status tokenizer_save(const Tokenizer *tokenizer, const char *folder);

int32_t tokenizer_vocab(const Tokenizer *tokenizer);       // ids are 0..vocab-1
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer); // of "<|endoftext|>", else TOKEN_END's, or -1
uint64_t tokenizer_hash(const Tokenizer *tokenizer);       // equal for tokenizers that give equal ids
const char *tokenizer_name(const Tokenizer *tokenizer);    // "bytes", "bpe", "wordpiece"
int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token); // its id, or -1

/* Trains a byte-level BPE of `vocab` tokens on texts (Sennrich, Haddow, Birch 2016, algorithm 1): <pad>,
 * <s>, </s>, <mask>, the 256 bytes, and merges. Each merge is the most frequent pair of tokens at its time,
 * among equals the one of the lowest ids, of those pairs that come at least twice and make a token of at
 * most 256 bytes. Nothing else decides: the same texts give the same tokenizer, in any order. ERROR_USAGE
 * for a vocabulary of less than TRAINED_LEAST. */
enum { TRAINED_LEAST = 4 + 256 };
CHECKED Status tokenizer_train(const PathList *texts, int64_t vocab, Tokenizer **tokenizer);

/* Appends the ids of `length` bytes of text. */
CHECKED Status tokenizer_encode(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list);

/* The same in steps, for texts whose ids should not all be in memory: each step appends at least `count`
 * ids, or all that are left. */
CHECKED Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count,
                                     TokenList *list);

/* The bytes of a token, which may be part of a UTF-8 character; a WordPiece's with its "##". They live as
 * long as the tokenizer. NULL and length 0 for an id outside the vocabulary. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, int64_t *length);
