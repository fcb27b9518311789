#include "data/tokenizer_state.h"

#include "base/memory.h"

#include <string.h>

Tokenizer *tokenizer_new(void) {
    Tokenizer *tokenizer = memory_allocate(sizeof *tokenizer);
    tokenizer->end_of_text = -1;
    for (int i = 0; i < SPECIAL_COUNT; i++) tokenizer->special[i] = -1;
    return tokenizer;
}

void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes) {
    tokenizer->pool = memory_allocate((size_t)bytes);
    tokenizer->starts = memory_array((size_t)vocab + 1, sizeof *tokenizer->starts);
    tokenizer->spelled = memory_array((size_t)vocab, sizeof *tokenizer->spelled);
}

void special_take(Tokenizer *tokenizer, const char *name, int32_t id) {
    static const char *const names[SPECIAL_COUNT][2] = {
        {"[PAD]", "<pad>"}, {"[CLS]", "<s>"}, {"[SEP]", "</s>"}, {"[UNK]", "<unk>"}, {"[MASK]", "<mask>"}};
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (strcmp(name, names[i][0]) == 0 || strcmp(name, names[i][1]) == 0) tokenizer->special[i] = id;
}

void piece_cut(const uint8_t *text, int64_t from, int64_t *end) {
    if (*end - from <= PIECE_LIMIT) return;
    *end = from + PIECE_LIMIT;
    for (int i = 0; i < 3 && (text[*end] & 0xC0) == 0x80; i++) --*end;
}
