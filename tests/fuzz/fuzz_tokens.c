/* Fuzzes token shards: an accepted shard must be readable to its end. */
#include "data/shard.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_tokens(const uint8_t *data, size_t size) {
    int64_t count = 0, width = 0;
    Status status = shard_check(data, (int64_t)size, "input", &count, &width);
    if (!status) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < count; i++) {
            uint32_t token = 0;
            memcpy(&token, data + SHARD_HEADER_BYTES + width * i, (size_t)width);
            sum += token;
        }
        uint64_t most = width == 2 ? UINT16_MAX : UINT32_MAX;
        must(SHARD_HEADER_BYTES + width * count == (int64_t)size && sum <= most * (uint64_t)count);
    }
    status_free(status);
}

FUZZ(tokens, read_tokens, NULL)
