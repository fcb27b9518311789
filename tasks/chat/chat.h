/* chat: conversations as a model reads them: rendered by its template and encoded, as transformers'
 * apply_chat_template does. Marks that a message spells, such as <|im_end|>, are tokens there, and here. */
#pragma once

#include "tasks/chat/chat_template.h"
#include "data/tokenizer.h"

typedef struct {
    ChatRole role;
    const char *text;
    int64_t length; // bytes
} ChatMessage;

typedef struct {
    ChatTemplate template;
    Tokenizer *tokenizer; // the caller's
    int32_t end;          // the token that ends an answer
} Chat;

/* By the tokenizer's own template, or the form that `name` names, unless that is "". ERROR_USAGE where there
 * is none, or the tokenizer lacks the token that ends an answer; ERROR_FORMAT as chat_template_read. */
CHECKED Status chat_open(Tokenizer *tokenizer, const char *name, Chat *chat);
void chat_close(Chat *chat); // an all-zero one is fine

/* Appends the text of a conversation; `ask`: and what asks for an answer. starts[i], unless starts is NULL,
 * gets where in the appended text the content of message i begins, or the answer that was asked for.
 * ERROR_FORMAT for what the template cannot say. */
CHECKED Status chat_render(const ChatTemplate *template, const ChatMessage *messages, int64_t count, bool ask,
                           Bytes *text, int64_t *starts);

/* Appends its tokens. *content gets which of those appended the content of the last message begins with. */
CHECKED Status chat_encode(const Chat *chat, const ChatMessage *messages, int64_t count, bool ask,
                           TokenList *ids, int64_t *content);

/* Appends the tokens that go from an answer to the next: the answer's end, unless it `ended` by itself, the
 * user's message, and what asks for an answer. *content as chat_encode's. */
CHECKED Status chat_encode_next(const Chat *chat, const ChatMessage *message, bool ended, TokenList *ids,
                                int64_t *content);

/* The tokens of a whole conversation, and for each a byte that tells whether it is the assistant's: of an
 * answer, or its end. Both are appended. */
CHECKED Status chat_encode_answers(const Chat *chat, const ChatMessage *messages, int64_t count,
                                   TokenList *ids, Bytes *answers);
