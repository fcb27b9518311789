/* bpe_words: the distinct words of texts and how often each comes, for training a BPE on them. */
#pragma once

#include "base/files.h"
#include "data/tokenizer_state.h"

/* A distinct piece of the texts. */
typedef struct {
    int64_t first; // where its bytes begin in Words.bytes
    int32_t length;
    int64_t count; // how often it comes
} Word;

/* In the order of their first appearance. */
typedef struct {
    Word *list;
    int64_t count, room;
    uint8_t *bytes; // of all words, one after the other
    int64_t symbols, bytes_room;
    int32_t *slots; // open addressing, a power of two of them: word + 1, or 0 where empty
    int64_t slot_count;
} Words;

/* Counts the pieces of the texts, as the tokenizer, a BPE, cuts them. Start with all-zero words. */
CHECKED Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words);
void words_free(Words *words);
