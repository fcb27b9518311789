#include "data/tokenizer.h"

#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_load.h"
#include "data/tokenizer_save.h"
#include "data/wordpiece.h"

#include <string.h>

/* What is done differently by each kind. The bytes have no pieces. */
static const struct {
    const char *name;
    Status (*piece_end)(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *end);
    void (*encode)(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list);
    Status (*save)(const Tokenizer *tokenizer, const char *folder);
} kinds[] = {
    [TOKENIZER_BYTES] = {"bytes", NULL, NULL, tokenizer_save_bytes},
    [TOKENIZER_BPE] = {"bpe", bpe_piece_end, bpe_encode, tokenizer_save_bpe},
    [TOKENIZER_WORDPIECE] = {"wordpiece", wordpiece_piece_end, wordpiece_encode, tokenizer_save_wordpiece},
};

enum {
    CACHED_BYTES = 31, // the longest piece that is remembered
    CACHED_IDS = 7,
    CACHE_SLOTS = 1 << 14, // direct-mapped
};

/* A piece met before and its ids: one cache line. `length` is 0 in an unused slot. */
typedef struct CachedPiece {
    uint8_t bytes[CACHED_BYTES], length;
    int32_t count, ids[CACHED_IDS];
} CachedPiece;

/* ---- opening ---- */

/* Hands the tokenizer on, or frees it where it could not be filled. */
static Status finish(Status status, Tokenizer *filled, Tokenizer **tokenizer) {
    *tokenizer = status ? NULL : filled;
    if (status) tokenizer_free(filled);
    return status;
}

Status tokenizer_open(const char *path, Tokenizer **tokenizer) {
    Tokenizer *t = tokenizer_new();
    if (path && strcmp(path, "bytes") != 0) return finish(tokenizer_load_folder(t, path), t, tokenizer);
    tokenizer_load_bytes(t);
    return finish(OK, t, tokenizer);
}

Status tokenizer_train(const PathList *texts, int64_t vocab, Tokenizer **tokenizer) {
    *tokenizer = NULL;
    if (vocab < TRAINED_LEAST || vocab > VOCAB_LIMIT)
        return fail(ERROR_USAGE, "a tokenizer of %lld tokens cannot be trained; %d to %d are supported",
                    (long long)vocab, TRAINED_LEAST, VOCAB_LIMIT);
    Tokenizer *t = tokenizer_new();
    return finish(bpe_train(t, texts, vocab), t, tokenizer);
}

void tokenizer_free(Tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_free(tokenizer->bpe);
    wordpiece_free(tokenizer->wordpiece);
    memory_free(tokenizer->pool);
    memory_free(tokenizer->starts);
    memory_free(tokenizer->spelled);
    memory_free(tokenizer->cache);
    memory_free(tokenizer);
}

Status tokenizer_present(const char *folder, bool *present) {
    return tokenizer_load_present(folder, present);
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *folder) {
    return kinds[tokenizer->kind].save(tokenizer, folder);
}

int32_t tokenizer_vocab(const Tokenizer *tokenizer) {
    return tokenizer->vocab;
}
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer) {
    return tokenizer->end_of_text;
}
int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token) {
    return tokenizer->special[token];
}
uint64_t tokenizer_hash(const Tokenizer *tokenizer) {
    return tokenizer->hash;
}
const char *tokenizer_name(const Tokenizer *tokenizer) {
    return kinds[tokenizer->kind].name;
}

/* ---- encoding ---- */

static void append_bytes(const uint8_t *text, int64_t length, TokenList *list) {
    token_list_reserve(list, length);
    for (int64_t i = 0; i < length; i++) list->ids[list->count++] = text[i];
}

/* The slot of a short piece in the cache. `key` is the piece, zeros, and its length in the last byte. */
static CachedPiece *cache_slot(const Tokenizer *tokenizer, const uint8_t key[CACHED_BYTES + 1]) {
    uint64_t words[4], mixed = 0;
    memcpy(words, key, sizeof words);
    for (int i = 0; i < 4; i++) {
        mixed = (mixed ^ words[i]) * 0x9E3779B97F4A7C15;
        mixed ^= mixed >> 32;
    }
    return &tokenizer->cache[mixed % CACHE_SLOTS];
}

static void append_piece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    if (length > CACHED_BYTES) {
        kinds[tokenizer->kind].encode(tokenizer, piece, length, list);
        return;
    }
    if (!tokenizer->cache) tokenizer->cache = memory_array(CACHE_SLOTS, sizeof *tokenizer->cache);
    uint8_t key[CACHED_BYTES + 1] = {0};
    memcpy(key, piece, (size_t)length);
    key[CACHED_BYTES] = (uint8_t)length;
    CachedPiece *slot = cache_slot(tokenizer, key);
    if (memcmp(slot, key, sizeof key) == 0) { /* the bytes and, right behind them, the length */
        token_list_reserve(list, CACHED_IDS);
        memcpy(list->ids + list->count, slot->ids, sizeof slot->ids);
        list->count += slot->count;
        return;
    }
    int64_t before = list->count;
    kinds[tokenizer->kind].encode(tokenizer, piece, length, list);
    int64_t count = list->count - before;
    if (count == 0 || count > CACHED_IDS) return;
    memcpy(slot, key, sizeof key);
    slot->count = (int32_t)count;
    memcpy(slot->ids, list->ids + before, (size_t)count * sizeof *slot->ids);
}

Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count, TokenList *list) {
    const uint8_t *text = cursor->text;
    int64_t target = list->count + count;
    while (cursor->offset < cursor->length && list->count < target) {
        int64_t from = cursor->offset, end;
        if (tokenizer->kind == TOKENIZER_BYTES) {
            end = cursor->length - from < count ? cursor->length : from + count;
            append_bytes(text + from, end - from, list);
        } else {
            TRY(kinds[tokenizer->kind].piece_end(tokenizer, cursor, &end));
            append_piece(tokenizer, text + from, end - from, list);
        }
        cursor->offset = end;
    }
    return OK;
}

Status tokenizer_encode(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list) {
    EncodeCursor cursor = {.text = text, .length = length};
    return tokenizer_encode_step(tokenizer, &cursor, length, list);
}

const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, int64_t *length) {
    *length = 0;
    if (id < 0 || id >= tokenizer->vocab) return NULL;
    *length = tokenizer->starts[id + 1] - tokenizer->starts[id];
    return tokenizer->pool + tokenizer->starts[id];
}
