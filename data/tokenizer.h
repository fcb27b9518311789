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
 * On valid UTF-8 the ids are those of Hugging Face's tokenizers (what is a letter or a number is looked up in
 * PCRE2's tables: Unicode 14 in version 10.42). Only WordPiece has other ids for some characters that are
 * newer than Unicode 8 (data/wordpiece.h). Bytes and BPE encode any bytes, and decoding gives the same bytes
 * back, unless a normalizer or a space before the text changes them or the vocabulary lacks a byte,
 * which is left out then, as there. A run of bytes that is not UTF-8 is a piece of its own, and a piece of
 * over 4 MiB is cut.
 *
 * Tokens that are added to a vocabulary are looked for in the text first. Those that are special, as
 * "<|im_end|>", are taken for tokens only in a conversation (tokenizer_encode_special); in plain data
 * they are text like any other and encoded letter by letter, as tokenizers does with encode_special_tokens.
 *
 * A tokenizer remembers pieces it has met, so it must not encode in two threads at once. */
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
 * The files are checked: every printable byte has its token, ids are 0..n-1 and each is used once, a merge's
 * two sides and its product are tokens, no merge comes twice, and nothing is asked for that is not done here.
 * ERROR_FILE or ERROR_FORMAT otherwise. */
CHECKED Status tokenizer_open(const char *path, Tokenizer **tokenizer);
void tokenizer_free(Tokenizer *tokenizer);
CLOSER(tokenizer_release, Tokenizer, tokenizer_free)

/* Does `folder` hold a tokenizer's files, so that tokenizer_open would read them? */
CHECKED Status tokenizer_present(const char *folder, bool *present);

/* Writes the files that the tokenizer was read from, byte for byte, with its tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja; of one that was trained, a tokenizer.json. A
 * tokenizer_config.json is made where there was none. `folder` exists. */
CHECKED Status tokenizer_save(const Tokenizer *tokenizer, const char *folder);

int32_t tokenizer_vocab(const Tokenizer *tokenizer); // ids are 0..vocab-1
/* Of the config's eos_token, else of "<|endoftext|>", else TOKEN_END's, or -1. */
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer);
uint64_t tokenizer_hash(const Tokenizer *tokenizer);    // equal for tokenizers that give equal ids
const char *tokenizer_name(const Tokenizer *tokenizer); // "bytes", "bpe", "wordpiece"
int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token); // its id, or -1

/* What its post_processor puts before and after a text where special tokens are asked for; mostly nothing,
 * or the beginning's token. */
const TokenList *tokenizer_before(const Tokenizer *tokenizer);
const TokenList *tokenizer_after(const Tokenizer *tokenizer);

/* The source of its folder's chat template (tasks/chat/chat_template.h), or NULL. */
const char *tokenizer_chat_template(const Tokenizer *tokenizer);
/* Another, which is saved in the place of the folder's. */
void tokenizer_choose_template(Tokenizer *tokenizer, const char *source);
/* The texts of special tokens by the keys that the folder's configuration names them with, as "bos_token"; null
 * where it says that there is none. NULL where there is no configuration. */
const struct json_t *tokenizer_names(const Tokenizer *tokenizer);
bool tokenizer_adds(const Tokenizer *tokenizer,
                    int32_t id); // is it a token that was added to the vocabulary?

/* Trains a byte-level BPE of `vocab` tokens on texts (Sennrich, Haddow, Birch 2016, algorithm 1): <pad>,
 * <s>, </s>, <mask>, the 256 bytes, and merges. Each merge is the most frequent pair of tokens at its time,
 * among equals the one of the lowest ids, of those pairs that come at least twice and make a token of at
 * most 256 bytes. Nothing else decides: the same texts give the same tokenizer, in any order. ERROR_USAGE
 * for a vocabulary of less than TRAINED_LEAST. */
enum { TRAINED_LEAST = 4 + 256 };
CHECKED Status tokenizer_train(const PathList *texts, int64_t vocab, Tokenizer **tokenizer);

/* Appends the ids of `length` bytes of text. tokenizer_before and _after are not put around it. */
CHECKED Status tokenizer_encode(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list);

/* The same where a special token that is spelled in the text is that token: for conversations. */
CHECKED Status tokenizer_encode_special(Tokenizer *tokenizer, const void *text, int64_t length,
                                        TokenList *list);

/* The first special token that a plain text has spelled so far, and that was taken for text; or NULL. */
const char *tokenizer_passed(const Tokenizer *tokenizer);

/* The same in steps, for texts whose ids should not all be in memory: each step appends at least `count`
 * ids, or all that are left. */
CHECKED Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count,
                                     TokenList *list);

/* The bytes of a token, which may be part of a UTF-8 character; a WordPiece's with its "##", Llama 2's first
 * token with its space. text_stream.h makes text of them. They live as long as the tokenizer. NULL and length
 * 0 for an id outside the vocabulary. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, int64_t *length);
