/* Counts the distinct pieces of texts, for training a tokenizer on them. */
#include "base/memory.h"
#include "data/hash.h"
#include "data/tokenizer_train.h"

#include <string.h>

static Status fail_memory(void) {
    return fail(ERROR_MEMORY, "no memory left to count the words of a text");
}

/* The slot of a piece, or the empty one where it belongs. */
static int32_t *find(const Words *words, const uint8_t *piece, int64_t length) {
    for (uint64_t place = hash_bytes(0, piece, (size_t)length);; place++) {
        int32_t *slot = &words->slots[place & (uint64_t)(words->slot_count - 1)];
        if (!*slot) return slot;
        const Word *word = &words->list[*slot - 1];
        if (word->length == length && memcmp(words->bytes + word->first, piece, (size_t)length) == 0)
            return slot;
    }
}

/* Twice as many slots, at least twice the words. */
static Status grow_slots(Words *words) {
    int64_t count = words->slot_count ? 2 * words->slot_count : 1 << 12;
    int32_t *slots = memory_array((size_t)count, sizeof *slots);
    if (!slots) return fail_memory();
    memory_free(words->slots);
    words->slots = slots;
    words->slot_count = count;
    for (int64_t i = 0; i < words->count; i++)
        *find(words, words->bytes + words->list[i].first, words->list[i].length) = (int32_t)i + 1;
    return OK;
}

static Status reserve(Words *words, int64_t length) {
    if (words->count == INT32_MAX - 1)
        return fail(ERROR_FORMAT, "the texts have over %d different words", INT32_MAX - 1);
    if (words->count == words->room) {
        int64_t room = words->room ? 2 * words->room : 1 << 11;
        Word *list = memory_resize(words->list, (size_t)room * sizeof *list);
        if (!list) return fail_memory();
        words->list = list;
        words->room = room;
    }
    if (words->symbols + length > words->bytes_room) {
        int64_t room = 2 * (words->symbols + length);
        uint8_t *bytes = memory_resize(words->bytes, (size_t)room);
        if (!bytes) return fail_memory();
        words->bytes = bytes;
        words->bytes_room = room;
    }
    return OK;
}

static Status count_piece(Words *words, const uint8_t *piece, int64_t length) {
    if (2 * (words->count + 1) > words->slot_count) TRY(grow_slots(words));
    int32_t *slot = find(words, piece, length);
    if (*slot) {
        words->list[*slot - 1].count++;
        return OK;
    }
    TRY(reserve(words, length));
    memcpy(words->bytes + words->symbols, piece, (size_t)length);
    words->list[words->count++] = (Word){words->symbols, (int32_t)length, 1};
    words->symbols += length;
    *slot = (int32_t)words->count;
    return OK;
}

static Status count_text(Tokenizer *tokenizer, const FileMap *map, Words *words) {
    EncodeCursor cursor = {.text = map->data, .length = map->size};
    while (cursor.offset < cursor.length) {
        int64_t end;
        TRY(piece_end(tokenizer, &cursor, &end));
        TRY(count_piece(words, map->data + cursor.offset, end - cursor.offset));
        cursor.offset = end;
    }
    return OK;
}

Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words) {
    for (int64_t i = 0; i < texts->count; i++) {
        FileMap map;
        TRY(file_map(texts->paths[i], &map));
        Status status = count_text(tokenizer, &map, words);
        file_unmap(&map);
        TRY(status);
    }
    return OK;
}

void words_free(Words *words) {
    memory_free(words->list);
    memory_free(words->bytes);
    memory_free(words->slots);
    *words = (Words){0};
}
