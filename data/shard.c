#include "data/shard.h"

#include "base/memory.h"

#include <string.h>

Status shard_check(const uint8_t *data, int64_t size, const char *name, int64_t *count, int64_t *width) {
    int32_t header[3];
    if (size < SHARD_HEADER_BYTES)
        return fail(ERROR_FORMAT, "%s: a token shard begins with %d bytes of header, but the file has %lld",
                    name, SHARD_HEADER_BYTES, (long long)size);
    memcpy(header, data, sizeof header);
    bool wide = header[0] == SHARD_MAGIC_WIDE;
    int version = wide ? SHARD_VERSION_WIDE : SHARD_VERSION;
    if (header[0] != SHARD_MAGIC && !wide)
        return fail(ERROR_FORMAT, "%s is not a token shard: it begins with %d, not %d or %d", name, header[0],
                    SHARD_MAGIC, SHARD_MAGIC_WIDE);
    if (header[1] != version)
        return fail(ERROR_FORMAT, "%s: version %d of the shard format cannot be read, only %d", name,
                    header[1], version);
    *width = wide ? sizeof(uint32_t) : sizeof(uint16_t);
    int64_t expected = SHARD_HEADER_BYTES + *width * (int64_t)header[2];
    if (header[2] < 0 || size != expected)
        return fail(ERROR_FORMAT,
                    "%s: the header promises %d tokens, %lld bytes in all, but the file has %lld", name,
                    header[2], (long long)expected, (long long)size);
    *count = header[2];
    return OK;
}

Status shard_map(TokenPart *part) {
    TRY(file_map(part->name, &part->map));
    TRY(shard_check(part->map.data, part->map.size, part->name, &part->count, &part->width));
    part->tokens = part->map.data + SHARD_HEADER_BYTES;
    return OK;
}

void token_part_close(TokenPart *part) {
    memory_free(part->name);
    memory_free(part->owned);
    file_unmap(&part->map);
}
