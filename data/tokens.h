/* tokens: one long row of token ids, wherever it comes from:
 *
 *   .bin    token shards in llm.c's format (data/shard.h), memory-mapped. Several are taken one after the
 *           other.
 *   texts   any other files in UTF-8 (data/text_map.h), gzip or not: tokenized once and, given a folder for
 *           it, kept there as a shard named after the text and a hash of its name, its contents and the
 *           tokenizer. A kept shard that does not fit, or is not what was kept, is made anew. Between two
 *           texts stands the tokenizer's end of text, or a newline if it has none. The lines of JSON lines
 *           are texts of their own. */
#pragma once

#include "base/files.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/tokenizer.h"

#include <stdint.h>

typedef struct TokenSource TokenSource;

typedef struct {
    Tokenizer *tokenizer; // for texts; NULL where only shards will do. Used while opening, never kept.
    int64_t vocab;        // tokens must be below this; 0: the tokenizer's, or 65536 without one
    const char *field; // the texts are JSON lines, and this is the key of each text; "" or NULL: plain texts
    const char *cache; // the folder that keeps tokenized texts, made if missing; NULL: they stay in memory
} TokenOptions;

/* Opens a file, a pattern (* ? [...]), a folder's files, sorted by name, or a list of these with commas. They
 * must all be shards, or all texts. ERROR_FILE where nothing is found; ERROR_FORMAT for a bad shard;
 * ERROR_USAGE for a text without a tokenizer. */
CHECKED Status tokens_open(const char *path, const TokenOptions *options, TokenSource **source);

/* Opens these texts in this order; `name` is for messages and the kept shard. */
CHECKED Status tokens_open_texts(const PathList *texts, const char *name, const TokenOptions *options,
                                 TokenSource **source);
void tokens_close(TokenSource *source);
CLOSER(tokens_release, TokenSource, tokens_close)

/* What a file, a pattern or a folder stands for, sorted, or several of them with commas between, one after
 * another; folders inside are left out. ERROR_FILE for nothing. */
CHECKED Status tokens_find_files(const char *path, PathList *files);

int64_t tokens_count(const TokenSource *source);
int64_t tokens_text_bytes(const TokenSource *source); // of plain texts; else -1
/* The first of the plain texts whose name says that it is a table or JSON, of which all is read: commas,
 * quotes and keys. NULL: there is none. */
const char *tokens_raw(const TokenSource *source);

/* out[i] = token offset + i, for i < count, all within the source. A token outside the vocabulary is an
 * ERROR_FORMAT that names its file and its position in it. Threads may read at once. */
CHECKED Status tokens_read(const TokenSource *source, int64_t offset, int64_t count, int32_t *out);
