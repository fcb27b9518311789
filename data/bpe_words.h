/* bpe_words: the distinct words of texts and their counts, for training a BPE. */
#pragma once

#include "base/files.h"
#include "data/tokenizer_state.h"

/* A distinct piece of the texts. */
typedef struct {
    int64_t first; // start of its bytes in Words.bytes
    int32_t length;
    int64_t count; // occurrences
} Word;

/* In the order of first occurrence. */
typedef struct {
    Word *list;
    int64_t count, room;
    uint8_t *bytes; // of all words, concatenated
    int64_t symbols, bytes_room;
    int32_t *slots; // open addressing with a power of two of slots: word + 1, or 0 if empty
    int64_t slot_count;
} Words;

/* Counts the pieces of the texts, as the tokenizer, a BPE, splits them. `words` must be all-zero at first. */
CHECKED Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words);
void words_free(Words *words);
