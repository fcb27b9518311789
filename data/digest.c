#include "data/digest.h"

#include "base/memory.h"

#define XXH_INLINE_ALL // inline, for this processor: no library to link
#include <xxhash.h>

struct Digest {
    XXH3_state_t state;
};

uint64_t digest_bytes(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

Digest *digest_open(void) {
    Digest *digest = memory_allocate(sizeof *digest);
    digest_begin(digest);
    return digest;
}

void digest_begin(Digest *digest) {
    XXH3_64bits_reset(&digest->state);
}

void digest_add(Digest *digest, const void *data, size_t bytes) {
    XXH3_64bits_update(&digest->state, data, bytes);
}

uint64_t digest_value(const Digest *digest) {
    return XXH3_64bits_digest(&digest->state);
}

void digest_close(Digest *digest) {
    memory_free(digest);
}
