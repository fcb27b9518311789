#include "data/piece_cache.h"

#include "base/memory.h"

#include <string.h>

enum {
    CACHED_BYTES = 31, // bytes of the longest piece in the cache
    CACHED_IDS = 7,
    SLOTS_LEAST = 1 << 8, // direct-mapped; powers of two
    SLOTS_MOST = 1 << 16,
};

/* A cached piece and its ids: one cache line. `length` is 0 in an unused slot. */
typedef struct CachedPiece {
    uint8_t bytes[CACHED_BYTES], length;
    int32_t count, ids[CACHED_IDS];
} CachedPiece;

/* The slot of a short piece in the cache. `key` is the piece, zeros, and its length in the last byte. */
static CachedPiece *cache_slot(const Tokenizer *tokenizer, const uint8_t key[CACHED_BYTES + 1]) {
    uint64_t words[4], mixed = 0;
    memcpy(words, key, sizeof words);
    for (int i = 0; i < 4; i++) {
        mixed = (mixed ^ words[i]) * 0x9E3779B97F4A7C15;
        mixed ^= mixed >> 32;
    }
    return &tokenizer->cache[mixed & (uint64_t)(tokenizer->cache_slots - 1)];
}

/* The cache starts small, because most texts are short. When half full, it is replaced by a larger one,
 * empty. */
static void make_room(Tokenizer *t) {
    if (t->cache_slots == SLOTS_MOST || t->cached < t->cache_slots / 2) return;
    t->cache_slots = t->cache_slots ? 4 * t->cache_slots : SLOTS_LEAST;
    t->cached = 0;
    memory_free(t->cache);
    t->cache = memory_array((size_t)t->cache_slots, sizeof *t->cache);
}

void piece_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, EncodePiece *encode,
                  TokenList *list) {
    if (length > CACHED_BYTES) {
        encode(tokenizer, piece, length, list);
        return;
    }
    make_room(tokenizer);
    uint8_t key[CACHED_BYTES + 1] = {0};
    memcpy(key, piece, (size_t)length);
    key[CACHED_BYTES] = (uint8_t)length;
    CachedPiece *slot = cache_slot(tokenizer, key);
    if (memcmp(slot, key, sizeof key) == 0) { /* the bytes and, directly after them, the length */
        token_list_reserve(list, CACHED_IDS);
        memcpy(list->ids + list->count, slot->ids, sizeof slot->ids);
        list->count += slot->count;
        return;
    }
    int64_t before = list->count;
    encode(tokenizer, piece, length, list);
    int64_t count = list->count - before;
    if (count == 0 || count > CACHED_IDS) return;
    tokenizer->cached += slot->length == 0;
    memcpy(slot, key, sizeof key);
    slot->count = (int32_t)count;
    memcpy(slot->ids, list->ids + before, (size_t)count * sizeof *slot->ids);
}
