/* shard: token files in llm.c's two formats: 256 int32 of header (20240520 and version 1, or 20240801 and
 * version 7; the number of tokens; the rest is ignored), then the tokens as uint16, in the second format as
 * uint32; little-endian. */
#pragma once

#include "base/files.h"
#include "base/status.h"

#include <stdint.h>

enum {
    SHARD_HEADER_BYTES = 1024,
    SHARD_MAGIC = 20240520,
    SHARD_VERSION = 1,
    SHARD_MAGIC_WIDE = 20240801,
    SHARD_VERSION_WIDE = 7,
    SHARD_NARROW_VOCAB = 1 << 16, // ids in the first format are below this
};

/* A sequence of tokens: of a mapped shard, or in memory. */
typedef struct {
    char *name;            // file name, for messages; owned
    FileMap map;           // the mapped shard
    void *owned;           // the memory, if not mapped
    const uint8_t *tokens; // (count) of `width` bytes, unaligned
    int64_t width;         // 2 or 4
    int64_t first, count;  // within the sequence of all parts
} TokenPart;

/* Checks the header of a shard in memory against its size; `name` is for messages. The tokens follow the
 * header, `width` bytes each. */
CHECKED Status shard_check(const uint8_t *data, int64_t size, const char *name, int64_t *count,
                           int64_t *width);

/* Maps and checks the shard `part->name`. */
CHECKED Status shard_map(TokenPart *part);
void token_part_close(TokenPart *part);
