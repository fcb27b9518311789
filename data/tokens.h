/* tokens: one long sequence of token ids, from
 *
 *   .bin    token shards in llm.c's format (data/shard.h), memory-mapped and concatenated
 *   texts   any other files in UTF-8 (data/text_map.h), optionally gzipped. They are tokenized once; with a
 *           cache folder the tokens are kept there as a shard named after the text and a hash of its name,
 *           its contents and the tokenizer. A shard that does not fit, or is damaged, is made again. Texts
 *           are separated by the tokenizer's end of text, or a newline if it has none. Each line of JSON
 *           lines is a text of its own. */
#pragma once

#include "base/files.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/tokenizer.h"

#include <stdint.h>

typedef struct TokenSource TokenSource;

typedef struct {
    Tokenizer *tokenizer; // for texts; NULL if only shards are accepted. Used only while opening.
    int64_t vocab;        // tokens must be below this; 0: the tokenizer's, or 65536 without one
    const char *field;    // the key of each text if the texts are JSON lines; "" or NULL: plain texts
    const char *cache;    // the folder that caches tokenized texts, created if missing; NULL: they stay in
                          // memory
} TokenOptions;

/* Opens a file, a pattern (* ? [...]), a folder's files, sorted by name, or a comma-separated list of these.
 * They must be all shards or all texts. ERROR_FILE if nothing is found; ERROR_FORMAT for a bad shard;
 * ERROR_USAGE for a text without a tokenizer. */
CHECKED Status tokens_open(const char *path, const TokenOptions *options, TokenSource **source);

/* Opens these texts in this order; `name` is for messages and the cached shard. */
CHECKED Status tokens_open_texts(const PathList *texts, const char *name, const TokenOptions *options,
                                 TokenSource **source);
void tokens_close(TokenSource *source);
CLOSER(tokens_release, TokenSource, tokens_close)

/* Expands a file, a pattern or a folder, sorted, or a comma-separated list of these; subfolders are ignored.
 * ERROR_FILE if nothing is found. */
CHECKED Status tokens_find_files(const char *path, PathList *files);

int64_t tokens_count(const TokenSource *source);
int64_t tokens_text_bytes(const TokenSource *source); // bytes of all plain texts; -1 for other sources
/* The first plain text whose name says that it is a table or JSON, all of which is read as text: commas,
 * quotes and keys. NULL: none. */
const char *tokens_raw(const TokenSource *source);

/* out[i] = token offset + i, for i < count, all within the source. A token outside the vocabulary is an
 * ERROR_FORMAT that names its file and position. Thread-safe. */
CHECKED Status tokens_read(const TokenSource *source, int64_t offset, int64_t count, int32_t *out);
