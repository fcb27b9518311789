/* What tokens.c and tokens_text.c share. */
#ifndef DATA_TOKENS_INTERNAL_H
#define DATA_TOKENS_INTERNAL_H

#include "base/files.h"
#include "data/tokens.h"

/* A stretch of the row: a mapped shard, or tokens in memory. */
typedef struct {
    char *name;            // of the file, for messages
    FileMap map;           // of the shard, if mapped
    void *owned;           // the memory, if not
    const uint8_t *tokens; // (count) uint16, not aligned
    int64_t first, count;
} TokenPart;

struct TokenSource {
    TokenPart *parts;
    int64_t part_count, count, vocab, text_bytes;
};

/* ---- tokens_text.c ---- */

/* Fills the one part of an empty source with the texts' tokens. */
CHECKED Status open_texts(TokenSource *source, const PathList *texts, const char *name,
                          const TokenOptions *options);

#endif
