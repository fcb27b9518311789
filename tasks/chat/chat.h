/* chat: conversations as a model reads them: rendered by its template and encoded, as transformers'
 * apply_chat_template does. Marks that a message spells, such as <|im_end|>, are tokens there, and here. */
#pragma once

#include "tasks/chat/chat_template.h"

typedef struct {
    ChatTemplate template;
    Tokenizer *tokenizer; // the caller's
    int32_t end; // the token that ends an answer: what the template writes there, or the tokenizer's end
    bool ends;   // the template writes it
} Chat;

/* By the tokenizer's own template, or the one that `name` names (chat_template_open). ERROR_USAGE where
 * there is none, or the tokenizer lacks the token that ends an answer; ERROR_FORMAT for a template that
 * cannot be run. */
CHECKED Status chat_open(Tokenizer *tokenizer, const char *name, Chat *chat);
/* By a template's source. */
CHECKED Status chat_open_source(Tokenizer *tokenizer, const char *source, Chat *chat);
void chat_close(Chat *chat); // an all-zero one is fine

/* Appends a conversation's tokens; `ask`: and those of what asks for an answer. *content, unless NULL,
 * gets which of those appended the content of the last message begins with. ERROR_FORMAT for what the
 * template cannot say. */
CHECKED Status chat_encode(const Chat *chat, const ChatMessage *messages, int64_t count, bool ask,
                           TokenList *ids, int64_t *content);

/* Appends the tokens that go from an answer to the next: the answer's end, unless it `ended` by itself, the
 * user's message, and what asks for an answer. *content as chat_encode's. */
CHECKED Status chat_encode_next(const Chat *chat, const ChatMessage *message, bool ended, TokenList *ids,
                                int64_t *content);

/* The tokens of a whole conversation, and for each a byte that tells whether it is the assistant's: of an
 * answer, from where it is asked for to the token that ends it, or of what the template marks by {%
 * generation %}. Both are appended. ERROR_FORMAT where the template's renderings do not tell. */
CHECKED Status chat_encode_answers(const Chat *chat, const ChatMessage *messages, int64_t count,
                                   TokenList *ids, Bytes *answers);

/* ---- for chat_answers.c ---- */

/* A text that the rendering does not hold, to be put in the place of a message and looked for. */
enum { SENTINEL_SIZE = 32 };
void chat_choose_sentinel(const char *text, int64_t length, char sentinel[SENTINEL_SIZE]);
/* Where the sentinel stands in the rendering, or -1; -2: more than once. */
int64_t chat_find_sentinel(const JinjaOutput *output, const char *sentinel);
/* Which of the ids of the text begins behind its first `length` bytes, or holds what comes next. */
CHECKED Status chat_find_token(const Chat *chat, const JinjaOutput *text, int64_t length, const int32_t *ids,
                               int64_t count, int64_t *token);
