/* conversations: what a model learns to answer, from JSON lines as {"messages": [{"role": "user", "content":
 * ...}, ...]} with the roles system, user and assistant. A conversation is its text by the model's template,
 * of which the assistant's tokens, with those that end its answers, are targets. It is a row of its own, or
 * packed with others into a row. */
#pragma once

#include "data/loader.h"
#include "data/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ConversationSource ConversationSource;

typedef struct {
    const char *path;     // a file, a pattern or a folder
    Tokenizer *tokenizer; // used while opening, never kept
    const char
        *template; // as chat_open's name; one that is named becomes the tokenizer's, to be saved with it
    int64_t seq;   // inputs of a row: of a longer conversation the end is cut off
    bool packed;   // a row has as many conversations as fit (tasks/chat/packing.h)
} ConversationOptions;

/* What was read. */
typedef struct {
    int64_t conversations, cut, left_out; // left out: nothing of the assistant's would be in its row
    int64_t rows;                         // that they are in
    int64_t tokens, answers;              // inputs of all; targets
} ConversationCounts;

/* ERROR_FORMAT for a line that is no conversation, or one that the template cannot say; and where none is
 * left. */
CHECKED Status conversations_open(const ConversationOptions *options, ConversationSource **source);
void conversations_close(ConversationSource *source); // NULL is fine

ConversationCounts conversations_counts(const ConversationSource *source);
int32_t conversations_padding_token(const ConversationSource *source);

/* A conversation's tokens, of which all but the last are inputs, and for each a byte that tells whether it is
 * a target. They live as long as the source. */
const int32_t *conversations_tokens(const ConversationSource *source, int64_t conversation, int64_t *length,
                                    const uint8_t **answers);

/* The conversations of a row, in the order in which they stand in it. */
const int64_t *conversations_row(const ConversationSource *source, int64_t row, int64_t *count);

/* Batches of rows of conversations of similar length: put together as those of pairs (tasks/pairs/pairs.h), but
 * with as many rows of their width as batch * seq tokens hold. The source outlives the loader. */
CHECKED Status loader_open_conversations(const LoaderOptions *options, const ConversationSource *source,
                                         Loader **loader);

/* Inputs of one epoch's batches, with their padding; `apart`: as if each conversation were a row. */
CHECKED Status conversations_padded(const ConversationSource *source, int64_t batch, int64_t seq, bool apart,
                                    int64_t *tokens);
