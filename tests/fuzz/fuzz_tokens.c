/* Token shards from bytes: whatever passes the check can be read to its end. */
#include "data/shard.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t count = 0;
    Status status = shard_check(data, (int64_t)size, "input", &count);
    if (!status) {
        unsigned sum = 0;
        for (int64_t i = 0; i < count; i++) {
            uint16_t token;
            memcpy(&token, data + SHARD_HEADER_BYTES + 2 * i, sizeof token);
            sum += token;
        }
        if (SHARD_HEADER_BYTES + 2 * (size_t)count != size || sum > 65535u * (unsigned)count) abort();
    }
    status_free(status);
    return 0;
}
