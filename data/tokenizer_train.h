/* tokenizer_train: what the two halves of training a BPE share: counting words, and merging in them. */
#ifndef DATA_TOKENIZER_TRAIN_H
#define DATA_TOKENIZER_TRAIN_H

#include "data/tokenizer_internal.h"

/* A distinct piece of the texts. */
typedef struct {
    int64_t first; // its bytes' place in Words.bytes
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

/* Counts the pieces of the texts, cut by the tokenizer's splitter. Start with all-zero words. */
CHECKED Status words_count(Tokenizer *tokenizer, const PathList *texts, Words *words);
void words_free(Words *words);

#endif
