#include "data/bpe_words.h"

#include "base/memory.h"
#include "data/text_map.h"
#include "data/bpe.h"
#include "base/hash.h"

#include <string.h>

/* The slot of a piece, or the empty slot for it. */
static int32_t *find(const Words *words, const uint8_t *piece, int64_t length) {
    for (uint64_t index = hash_bytes(0, piece, (size_t)length);; index++) {
        int32_t *slot = &words->slots[index & (uint64_t)(words->slot_count - 1)];
        if (!*slot) return slot;
        const Word *word = &words->list[*slot - 1];
        if (word->length == length && memcmp(words->bytes + word->first, piece, (size_t)length) == 0)
            return slot;
    }
}

/* Doubles the slots, to at least twice the number of words. */
static void grow_slots(Words *words) {
    int64_t count = words->slot_count ? 2 * words->slot_count : 1 << 12;
    memory_free(words->slots);
    words->slots = memory_array((size_t)count, sizeof *words->slots);
    words->slot_count = count;
    for (int64_t i = 0; i < words->count; i++)
        *find(words, words->bytes + words->list[i].first, words->list[i].length) = (int32_t)i + 1;
}

static Status count_piece(Words *words, const uint8_t *piece, int64_t length) {
    if (2 * (words->count + 1) > words->slot_count) grow_slots(words);
    int32_t *slot = find(words, piece, length);
    if (*slot) {
        words->list[*slot - 1].count++;
        return OK;
    }
    if (words->count == INT32_MAX - 1)
        return fail(ERROR_FORMAT, "the texts have more than %d distinct words", INT32_MAX - 1);
    words->list = memory_grow(words->list, &words->room, words->count + 1, sizeof *words->list);
    words->bytes = memory_grow(words->bytes, &words->bytes_room, words->symbols + length, 1);
    memcpy(words->bytes + words->symbols, piece, (size_t)length);
    words->list[words->count++] = (Word){words->symbols, (int32_t)length, 1};
    words->symbols += length;
    *slot = (int32_t)words->count;
    return OK;
}

static Status count_text(Tokenizer *tokenizer, const FileMap *map, Words *words) {
    EncodeCursor cursor = {.text = map->data, .length = map->size, .section_end = map->size};
    while (cursor.offset < cursor.length) {
        int64_t begin, end;
        TRY(bpe_piece_next(tokenizer, &cursor, &begin, &end));
        TRY(count_piece(words, map->data + begin, end - begin));
        cursor.offset = end;
    }
    return OK;
}

Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words) {
    for (int64_t i = 0; i < texts->count; i++) {
        FileMap map;
        TRY(text_map(texts->paths[i], &map));
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
