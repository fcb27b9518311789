/* chat: renders conversations by the model's template and encodes them, like transformers'
 * apply_chat_template. Special tokens spelled in a message, such as <|im_end|>, become tokens, as in
 * transformers. */
#pragma once

#include "tasks/chat/chat_template.h"

#include <jansson.h>

typedef struct {
    ChatTemplate template;
    Tokenizer *tokenizer; // owned by the caller
    int32_t end; // the token that ends an answer: written by the template, or else the tokenizer's end
    bool ends;   // the template writes the end token
} Chat;

/* Uses the tokenizer's own template, or the one named `name` (chat_template_open). ERROR_USAGE if there is
 * none, or the tokenizer lacks the token that ends an answer; ERROR_FORMAT for a template that cannot be
 * run. */
CHECKED Status chat_open(Tokenizer *tokenizer, const char *name, Chat *chat);
/* Uses the source of a template. */
CHECKED Status chat_open_source(Tokenizer *tokenizer, const char *source, Chat *chat);
void chat_close(Chat *chat); // accepts an all-zero chat

/* Appends a conversation's tokens; with `ask` also the prompt for an answer. *content, unless NULL, is set to
 * the index, among the appended tokens, of the first token of the last message's content. ERROR_FORMAT if the
 * template refuses. */
CHECKED Status chat_encode(const Chat *chat, const ChatMessage *messages, int64_t count, bool ask,
                           TokenList *ids, int64_t *content);

/* Appends the tokens between an answer and the next: the answer's end token, unless it has already `ended`,
 * the user's message, and the prompt for an answer. *content as in chat_encode. */
CHECKED Status chat_encode_next(const Chat *chat, const ChatMessage *message, bool ended, TokenList *ids,
                                int64_t *content);

/* Appends the tokens of a whole conversation, and for each a byte that tells whether it is the assistant's:
 * an answer's tokens, from the prompt for it to its end token, or what the template marks by {% generation
 * %}. ERROR_FORMAT if this cannot be determined from the template's renderings. */
CHECKED Status chat_encode_answers(const Chat *chat, const ChatMessage *messages, int64_t count,
                                   TokenList *ids, Bytes *answers);

/* The messages of {"messages": [{"role": "user", "content": "..."}, ...]}, with the roles system, user and
 * assistant. Starts all-zero; memory_free(list) ends it. */
typedef struct {
    ChatMessage *list;
    int64_t count, room;
} ChatMessages;

/* Reads the object's messages, replacing earlier ones. Their texts live as long as the object. ERROR_FORMAT
 * if a message is malformed, or there are none. */
CHECKED Status chat_read_messages(const json_t *object, ChatMessages *messages);

/* ---- for chat_answers.c ---- */

/* A text that does not occur in the rendering, used in place of a message to locate it. */
enum { SENTINEL_SIZE = 32 };
void chat_choose_sentinel(const char *text, int64_t length, char sentinel[SENTINEL_SIZE]);
/* The position of the sentinel in the rendering, or -1; -2: more than once. */
int64_t chat_find_sentinel(const JinjaOutput *output, const char *sentinel);
/* The first of the text's ids that begins after its first `length` bytes, or contains the byte after them. */
CHECKED Status chat_find_token(const Chat *chat, const JinjaOutput *text, int64_t length, const int32_t *ids,
                               int64_t count, int64_t *token);
