/* conversations: training data of conversations, from JSON lines such as {"messages": [{"role": "user",
 * "content": ...}, ...]} with the roles system, user and assistant. A conversation is rendered by the model's
 * template; the assistant's tokens, including those that end its answers, are targets. A row is one
 * conversation, or several packed ones. */
#pragma once

#include "data/loader.h"
#include "data/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ConversationSource ConversationSource;

typedef struct {
    const char *path;     // a file, a pattern or a folder
    Tokenizer *tokenizer; // used only while opening
    const char *template; // template name, as for chat_open
    int64_t seq;          // inputs per row: the end of a longer conversation is cut
    bool packed;          // a row contains as many conversations as fit (tasks/chat/packing.h)
} ConversationOptions;

/* Statistics of the data. */
typedef struct {
    int64_t conversations, cut, left_out; // left out: without any target in its row
    int64_t rows;                         // rows that contain them
    int64_t tokens, answers;              // inputs of all conversations; number of targets
} ConversationCounts;

/* ERROR_FORMAT for a line that is not a conversation, or that the template refuses; and if none is left. */
CHECKED Status conversations_open(const ConversationOptions *options, ConversationSource **source);
void conversations_close(ConversationSource *source); // accepts NULL

ConversationCounts conversations_counts(const ConversationSource *source);
int32_t conversations_padding_token(const ConversationSource *source);

/* A conversation's tokens, all but the last of which are inputs, and for each a byte that tells whether it is
 * a target. They live as long as the source. */
const int32_t *conversations_tokens(const ConversationSource *source, int64_t conversation, int64_t *length,
                                    const uint8_t **answers);

/* The conversations of a row, in order. */
const int64_t *conversations_row(const ConversationSource *source, int64_t row, int64_t *count);

/* Batches of rows of similar length, grouped as for pairs (tasks/pairs/pairs.h), but with as many rows of
 * their width as batch * seq tokens allow. The source must outlive the loader. */
CHECKED Status loader_open_conversations(const LoaderOptions *options, const ConversationSource *source,
                                         Loader **loader);

/* Inputs of one epoch's batches, including padding; `unpacked`: computed as if each conversation were a
 * row. */
CHECKED Status conversations_padded(const ConversationSource *source, int64_t batch, int64_t seq,
                                    bool unpacked, int64_t *tokens);
