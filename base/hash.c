#include "base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 32;
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const char *at = data;
    hash = mix(hash, bytes + 1); // separates adjacent parts
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    if (bytes) memcpy(&rest, at, bytes);
    return mix(hash, rest);
}
