#include "data/tokenizer.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/tokenizer_internal.h"
#include "data/wordpiece.h"

#include <string.h>

static Status fail_memory(void) {
    return fail(ERROR_MEMORY, "no memory left for the tokenizer");
}

/* ---- opening ---- */

static Status open_bytes(Tokenizer *tokenizer) {
    tokenizer->kind = TOKENIZER_BYTES;
    tokenizer->vocab = 256;
    tokenizer->end_of_text = -1;
    tokenizer->hash = 256;
    tokenizer->pool = memory_allocate(256);
    tokenizer->starts = memory_array(257, sizeof *tokenizer->starts);
    if (!tokenizer->pool || !tokenizer->starts) return fail_memory();
    for (int i = 0; i < 256; i++) tokenizer->pool[i] = (uint8_t)i;
    for (int i = 0; i <= 256; i++) tokenizer->starts[i] = i;
    return OK;
}

/* The files that may describe a tokenizer, with their folder before them. */
typedef struct {
    char *config, *vocab, *merges, *whole, *lines;
    bool has_config, has_merges, has_whole, has_lines; // has_merges: the vocabulary, too
} TokenizerPaths;

static void paths_free(TokenizerPaths *paths) {
    memory_free(paths->config);
    memory_free(paths->vocab);
    memory_free(paths->merges);
    memory_free(paths->whole);
    memory_free(paths->lines);
}

static Status look_for(const char *path, bool *there) {
    PathKind kind;
    TRY(path_kind(path, &kind));
    *there = kind != PATH_ABSENT;
    return OK;
}

static Status paths_find(const char *folder, TokenizerPaths *paths) {
    TRY(path_join(folder, "tokenizer_config.json", &paths->config));
    TRY(path_join(folder, "vocab.json", &paths->vocab));
    TRY(path_join(folder, "merges.txt", &paths->merges));
    TRY(path_join(folder, "vocab.txt", &paths->lines));
    TRY(path_join(folder, "tokenizer.json", &paths->whole));
    bool has_vocab;
    TRY(look_for(paths->config, &paths->has_config));
    TRY(look_for(paths->vocab, &has_vocab));
    TRY(look_for(paths->merges, &paths->has_merges));
    TRY(look_for(paths->whole, &paths->has_whole));
    TRY(look_for(paths->lines, &paths->has_lines));
    paths->has_merges = paths->has_merges && has_vocab;
    return OK;
}

static Status open_folder(Tokenizer *tokenizer, const char *folder, const TokenizerPaths *paths) {
    bool bytes = false;
    if (paths->has_config) TRY(load_is_bytes(paths->config, &bytes));
    if (bytes) return open_bytes(tokenizer);
    if (paths->has_merges)
        TRY(load_vocab_and_merges(tokenizer, paths->vocab, paths->merges));
    else if (paths->has_whole)
        TRY(load_tokenizer_json(tokenizer, paths->whole));
    else if (paths->has_lines)
        TRY(load_vocab_lines(tokenizer, paths->lines, paths->config));
    else
        return fail(ERROR_FILE,
                    "no tokenizer in %s: it should be \"bytes\" or a folder with vocab.json and merges.txt, "
                    "with tokenizer.json or with vocab.txt",
                    folder);
    if (tokenizer->kind == TOKENIZER_BPE) TRY(splitter_open(&tokenizer->splitter));
    tokenizer->cache = memory_array(CACHE_SLOTS, sizeof *tokenizer->cache);
    return tokenizer->cache ? OK : fail_memory();
}

Status tokenizer_open(const char *path, Tokenizer **tokenizer) {
    *tokenizer = NULL;
    Tokenizer *t = memory_allocate(sizeof *t);
    if (!t) return fail_memory();
    special_clear(t);
    Status status;
    if (!path || strcmp(path, "bytes") == 0) {
        status = open_bytes(t);
    } else {
        TokenizerPaths paths = {0};
        status = paths_find(path, &paths);
        if (!status) status = open_folder(t, path, &paths);
        paths_free(&paths);
    }
    if (status)
        tokenizer_free(t);
    else
        *tokenizer = t;
    return status;
}

void tokenizer_free(Tokenizer *tokenizer) {
    if (!tokenizer) return;
    splitter_free(tokenizer->splitter);
    wordpiece_free(tokenizer->wordpiece);
    memory_free(tokenizer->pairs.slots);
    memory_free(tokenizer->pool);
    memory_free(tokenizer->starts);
    memory_free(tokenizer->spelled);
    memory_free(tokenizer->merges);
    memory_free(tokenizer->cache);
    memory_free(tokenizer->scratch);
    memory_free(tokenizer);
}

Status tokenizer_present(const char *folder, bool *present) {
    TokenizerPaths paths = {0};
    *present = false;
    Status status = paths_find(folder, &paths);
    if (!status && paths.has_config) status = load_is_bytes(paths.config, present);
    if (!status && !*present) *present = paths.has_merges || paths.has_whole || paths.has_lines;
    paths_free(&paths);
    return status;
}

int32_t tokenizer_vocab(const Tokenizer *tokenizer) {
    return tokenizer->vocab;
}
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer) {
    return tokenizer->end_of_text;
}
uint64_t tokenizer_hash(const Tokenizer *tokenizer) {
    return tokenizer->hash;
}
const char *tokenizer_name(const Tokenizer *tokenizer) {
    static const char *const names[] = {"bytes", "bpe", "wordpiece"};
    return names[tokenizer->kind];
}

/* ---- special tokens ---- */

int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token) {
    return tokenizer->special[token];
}

void special_clear(Tokenizer *tokenizer) {
    for (int i = 0; i < SPECIAL_COUNT; i++) tokenizer->special[i] = -1;
}

void special_take(Tokenizer *tokenizer, const char *name, int32_t id) {
    static const char *const names[SPECIAL_COUNT][2] = {
        {"[PAD]", "<pad>"}, {"[CLS]", "<s>"}, {"[SEP]", "</s>"}, {"[UNK]", "<unk>"}, {"[MASK]", "<mask>"}};
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (strcmp(name, names[i][0]) == 0 || strcmp(name, names[i][1]) == 0) tokenizer->special[i] = id;
}

/* ---- encoding ---- */

Status token_list_add(TokenList *list, int32_t id) {
    TRY(token_list_reserve(list, 1));
    list->ids[list->count++] = id;
    return OK;
}

void token_list_free(TokenList *list) {
    memory_free(list->ids);
    *list = (TokenList){0};
}

static Status append_bytes(const uint8_t *text, int64_t length, TokenList *list) {
    TRY(token_list_reserve(list, length));
    for (int64_t i = 0; i < length; i++) list->ids[list->count++] = text[i];
    return OK;
}

/* The place of a short piece in the cache. `key` is the piece, zeros, and its length in the last byte. */
static CachedPiece *cache_slot(const Tokenizer *tokenizer, const uint8_t key[CACHED_BYTES + 1]) {
    uint64_t words[4], mixed = 0;
    memcpy(words, key, sizeof words);
    for (int i = 0; i < 4; i++) {
        mixed = (mixed ^ words[i]) * 0x9E3779B97F4A7C15;
        mixed ^= mixed >> 32;
    }
    return &tokenizer->cache[mixed % CACHE_SLOTS];
}

static Status encode_piece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    return tokenizer->kind == TOKENIZER_BPE ? merge_piece(tokenizer, piece, length, list)
                                            : wordpiece_encode(tokenizer, piece, length, list);
}

static Status append_piece(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    if (length > CACHED_BYTES) return encode_piece(tokenizer, piece, length, list);
    uint8_t key[CACHED_BYTES + 1] = {0};
    memcpy(key, piece, (size_t)length);
    key[CACHED_BYTES] = (uint8_t)length;
    CachedPiece *slot = cache_slot(tokenizer, key);
    if (memcmp(slot, key, sizeof key) == 0) { /* the bytes and, right behind them, the length */
        TRY(token_list_reserve(list, CACHED_IDS));
        memcpy(list->ids + list->count, slot->ids, sizeof slot->ids);
        list->count += slot->count;
        return OK;
    }
    int64_t before = list->count;
    TRY(encode_piece(tokenizer, piece, length, list));
    int64_t count = list->count - before;
    if (count == 0 || count > CACHED_IDS) return OK;
    memcpy(slot, key, sizeof key);
    slot->count = (int32_t)count;
    memcpy(slot->ids, list->ids + before, (size_t)count * sizeof *slot->ids);
    return OK;
}

/* The end of the run of bytes from `from` on that are not UTF-8. */
static int64_t invalid_end(const uint8_t *text, int64_t from, int64_t length) {
    int64_t end = from + 1;
    while (end < length && end - from < PIECE_LIMIT && !utf8_character(text + end, length - end)) end++;
    return end;
}

/* Ends a piece that is too long earlier, not inside a character. */
static void cut_piece(const uint8_t *text, int64_t from, int64_t *end) {
    if (*end - from <= PIECE_LIMIT) return;
    *end = from + PIECE_LIMIT;
    for (int i = 0; i < 3 && (text[*end] & 0xC0) == 0x80; i++) --*end;
}

Status piece_end(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *end) {
    const uint8_t *text = cursor->text;
    int64_t from = cursor->offset;
    if (tokenizer->kind == TOKENIZER_WORDPIECE) {
        *end = wordpiece_end(text, cursor->length, from);
        cut_piece(text, from, end);
        return OK;
    }
    if (cursor->valid <= from) cursor->valid = utf8_valid_end(text, from, cursor->length);
    if (cursor->valid <= from) {
        *end = invalid_end(text, from, cursor->length);
        return OK;
    }
    TRY(splitter_next(tokenizer->splitter, text, cursor->valid, from, end));
    cut_piece(text, from, end);
    return OK;
}

Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count, TokenList *list) {
    const uint8_t *text = cursor->text;
    int64_t target = list->count + count;
    while (cursor->offset < cursor->length && list->count < target) {
        int64_t from = cursor->offset, end;
        if (tokenizer->kind == TOKENIZER_BYTES) {
            end = cursor->length - from < count ? cursor->length : from + count;
            TRY(append_bytes(text + from, end - from, list));
            cursor->offset = end;
            continue;
        }
        TRY(piece_end(tokenizer, cursor, &end));
        TRY(append_piece(tokenizer, text + from, end - from, list));
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
