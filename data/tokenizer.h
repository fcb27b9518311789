/* tokenizer: text to token ids and back. Four kinds:
 *
 *   bytes            ids 0..255 are the bytes themselves
 *   byte-level BPE   byte-pair encoding as GPT-2's, Llama 3's, Qwen's (Radford et al. 2019; Sennrich,
 *                    Haddow, Birch 2016): the text is cut into pieces by patterns, and in each piece the
 *                    adjacent pair of lowest rank is merged until no known pair is left
 *   BPE              of characters, as Llama 2's and Mistral's (Kudo, Richardson 2018): spaces become U+2581,
 *                    and a character without a token is spelled by its bytes, or is the unknown token
 *   WordPiece        BERT's (Devlin et al. 2019): the text is cleaned, cut at spaces and punctuation,
 *                    lower-cased, freed of accents, and each word cut into the longest known parts from the
 *                    left
 *
 * On valid UTF-8 the ids equal those of Hugging Face's tokenizers (letters and numbers are classified by
 * PCRE2's tables: Unicode 14 in version 10.42). Only WordPiece differs, for some characters that are newer
 * than Unicode 8 (data/wordpiece.h). Bytes and BPE encode any bytes, and decoding returns the same bytes,
 * unless a normalizer or an inserted space changes them or the vocabulary lacks a byte, which is dropped, as
 * in tokenizers. A run of invalid UTF-8 is a piece of its own, and a piece of over 4 MiB is cut.
 *
 * Added tokens are searched in the text first. Special tokens, such as "<|im_end|>", are recognized only in
 * conversations (tokenizer_encode_special). In plain data they are ordinary text and encoded letter by
 * letter, as tokenizers does with encode_special_tokens.
 *
 * A tokenizer caches pieces, so two threads must not encode with it at once. */
#pragma once

#include "base/files.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/token.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Tokenizer Tokenizer;

/* Opens NULL or "bytes", or a folder, in which these are looked for in this order:
 *
 *   tokenizer_config.json with "fusebox_tokenizer": "bytes"   the byte tokenizer, as tokenizer_save marks it
 *   tokenizer.json                                            Hugging Face's, of a kind named above
 *   vocab.json and merges.txt                                 GPT-2's files
 *   vocab.txt                                                 BERT's; tokenizer_config.json may say
 *                                                             do_lower_case, strip_accents,
 *                                                             tokenize_chinese_chars
 *
 * tokenizer_config.json and special_tokens_map.json name the tokens of the beginning, the end and so on;
 * beside GPT-2's and BERT's files the config's added_tokens_decoder adds tokens, and add_prefix_space holds.
 *
 * The files are checked: every printable byte has a token, ids are 0..n-1 and each is used once, both sides
 * of a merge and its product are tokens, no merge occurs twice, and every requested feature is supported.
 * Otherwise the error is ERROR_FILE or ERROR_FORMAT. */
CHECKED Status tokenizer_open(const char *path, Tokenizer **tokenizer);
void tokenizer_free(Tokenizer *tokenizer);
CLOSER(tokenizer_release, Tokenizer, tokenizer_free)

/* Whether `folder` has a tokenizer's files, so that tokenizer_open would read them. */
CHECKED Status tokenizer_present(const char *folder, bool *present);

/* Writes the files that the tokenizer was read from, byte for byte, with its tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja; for a trained tokenizer, a tokenizer.json. A missing
 * tokenizer_config.json is created. `folder` must exist. */
CHECKED Status tokenizer_save(const Tokenizer *tokenizer, const char *folder);

int32_t tokenizer_vocab(const Tokenizer *tokenizer); // ids are 0..vocab-1
/* The id of the config's eos_token, else of "<|endoftext|>", else TOKEN_END's, or -1. */
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer);
uint64_t tokenizer_hash(const Tokenizer *tokenizer);    // equal for tokenizers that give equal ids
const char *tokenizer_name(const Tokenizer *tokenizer); // "bytes", "bpe", "wordpiece"
int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token); // the special token's id, or -1

/* Tokens that the post_processor adds before and after a text when special tokens are requested; mostly none,
 * or the beginning-of-text token. */
const TokenList *tokenizer_before(const Tokenizer *tokenizer);
const TokenList *tokenizer_after(const Tokenizer *tokenizer);

/* The source of its folder's chat template (tasks/chat/chat_template.h), or NULL. */
const char *tokenizer_chat_template(const Tokenizer *tokenizer);
/* Replaces the template, also for tokenizer_save. */
void tokenizer_choose_template(Tokenizer *tokenizer, const char *source);
/* The texts of special tokens by their keys in the folder's configuration, such as "bos_token"; null if the
 * configuration says that there is none. NULL without a configuration. */
const struct json_t *tokenizer_names(const Tokenizer *tokenizer);
bool tokenizer_adds(const Tokenizer *tokenizer,
                    int32_t id); // whether it is a token that was added to the vocabulary

/* Trains a byte-level BPE of `vocab` tokens on texts (Sennrich, Haddow, Birch 2016, algorithm 1): <pad>, <s>,
 * </s>, <mask>, the 256 bytes, and merges. Each merge is the most frequent pair of tokens at its time, with
 * the lowest ids among equals; only pairs that occur at least twice and create a token of at most 256 bytes
 * qualify. The result depends on nothing else: the same texts give the same tokenizer, in any order.
 * ERROR_USAGE for a vocabulary below TRAINED_LEAST. */
enum { TRAINED_LEAST = 4 + 256 };
CHECKED Status tokenizer_train(const PathList *texts, int64_t vocab, Tokenizer **tokenizer);

/* Appends the ids of `length` bytes of text, without tokenizer_before and _after. */
CHECKED Status tokenizer_encode(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list);

/* The same, but special tokens spelled in the text are recognized: for conversations. */
CHECKED Status tokenizer_encode_special(Tokenizer *tokenizer, const void *text, int64_t length,
                                        TokenList *list);

/* The first special token that a plain text has spelled so far and that was encoded as text; or NULL. */
const char *tokenizer_passed(const Tokenizer *tokenizer);

/* The same in steps, for texts whose ids should not all be in memory: each step appends at least `count` ids,
 * or all the rest. */
CHECKED Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count,
                                     TokenList *list);

/* The bytes of a token, which may be part of a UTF-8 character; a WordPiece's includes its "##", Llama 2's
 * first token its space. text_stream.h turns them into text. They live as long as the tokenizer. NULL and
 * length 0 for an id outside the vocabulary. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, int64_t *length);
