#define _GNU_SOURCE
#include "tasks/chat/chat.h"

#include "base/memory.h"
#include "data/lines.h"

#include <stdio.h>
#include <string.h>

/* ---- conversations in JSON ---- */

enum { MESSAGES_MOST = 1 << 16 };

static Status read_message(const json_t *object, ChatMessage *message) {
    const char *name = json_string_value(json_object_get(object, "role"));
    TRY(json_line_text(object, "content", &message->text, &message->length));
    for (ChatRole role = 0; name && role < ROLE_COUNT; role++) {
        message->role = role;
        if (strcmp(chat_role_name(role), name) == 0) return OK;
    }
    return fail(ERROR_FORMAT, "the role is %.40s, but must be system, user or assistant",
                name ? name : "missing");
}

Status chat_read_messages(const json_t *object, ChatMessages *messages) {
    const json_t *list = json_object_get(object, "messages"), *message;
    size_t i, count = json_array_size(list);
    if (!count || count > MESSAGES_MOST)
        return fail(ERROR_FORMAT, "\"messages\" must be a list of 1 to %d messages", MESSAGES_MOST);
    messages->list = memory_grow(messages->list, &messages->room, (int64_t)count, sizeof *messages->list);
    messages->count = (int64_t)count;
    json_array_foreach(list, i, message) {
        Status status = read_message(message, &messages->list[i]);
        if (status) return fail_at(status, "message %zu", i + 1);
    }
    return OK;
}

/* ---- sentinels ---- */

void chat_choose_sentinel(const char *text, int64_t length, char sentinel[SENTINEL_SIZE]) {
    for (int i = 0;; i++) {
        snprintf(sentinel, SENTINEL_SIZE, "zq%dqz", i);
        if (!memmem(text, (size_t)length, sentinel, strlen(sentinel))) return;
    }
}

int64_t chat_find_sentinel(const JinjaOutput *output, const char *sentinel) {
    size_t size = strlen(sentinel);
    const char *first = memmem(output->text, (size_t)output->length, sentinel, size);
    if (!first) return -1;
    const char *behind = first + size;
    if (memmem(behind, (size_t)(output->text + output->length - behind), sentinel, size)) return -2;
    return first - output->text;
}

static ChatMessage message_of(ChatRole role, const char *text) {
    return (ChatMessage){role, text, (int64_t)strlen(text)};
}

/* Renders a question, an answer and, if there are three messages, the last one. *behind is set to the
 * position after the answer, or to -1 if the rendering does not contain the answer exactly once. */
static Status render_answer(const Chat *chat, ChatMessage messages[3], int64_t count,
                            char sentinel[SENTINEL_SIZE], JinjaOutput *output, int64_t *behind) {
    chat_choose_sentinel(messages[2].text, messages[2].length, sentinel);
    messages[0] = message_of(ROLE_USER, "a");
    messages[1] = message_of(ROLE_ASSISTANT, sentinel);
    TRY(chat_template_render(&chat->template, messages, count, count == 3, output));
    *behind = chat_find_sentinel(output, sentinel);
    *behind = *behind < 0 ? -1 : *behind + (int64_t)strlen(sentinel);
    return OK;
}

/* ---- opening ---- */

static Status end_is_no_token(const char *text, int64_t length) {
    int64_t line = 0;
    while (line < length && line < 40 && text[line] != '\n') line++;
    return fail(ERROR_USAGE, "the chat template ends an answer with %.*s, which is no token of the tokenizer",
                (int)line, text);
}

/* The end is the added token after an answer or, if there is none, the tokenizer's end token. */
static Status take_end(Chat *chat, const char *text, int64_t length) {
    TokenList ids = {0};
    int32_t last = tokenizer_special(chat->tokenizer, TOKEN_END);
    while (length && strchr(" \n\t\r", *text)) text++, length--;
    chat->end = last >= 0 ? last : tokenizer_end_of_text(chat->tokenizer);
    if (!length && chat->end >= 0) return OK;
    if (!length)
        return fail(ERROR_USAGE,
                    "the chat template ends an answer with no token, and the tokenizer has no end token");
    Status status = tokenizer_encode_special(chat->tokenizer, text, length, &ids);
    chat->ends = ids.count && tokenizer_adds(chat->tokenizer, ids.ids[0]);
    if (chat->ends) chat->end = ids.ids[0];
    token_list_free(&ids);
    return status || chat->ends ? status : end_is_no_token(text, length);
}

/* A template may refuse to end with an answer; then another message follows it. */
static Status find_end(Chat *chat) {
    ChatMessage messages[3] = {[2] = message_of(ROLE_USER, "b")};
    char sentinel[SENTINEL_SIZE];
    CLOSED_BY(jinja_output_free) JinjaOutput output = {0};
    int64_t behind = -1;
    Status status = render_answer(chat, messages, 2, sentinel, &output, &behind);
    if (status) {
        status_free(status);
        TRY(render_answer(chat, messages, 3, sentinel, &output, &behind));
    }
    return behind < 0 ? take_end(chat, "", 0) : take_end(chat, output.text + behind, output.length - behind);
}

static Status open_end(Chat *chat, Status status) {
    if (!status) status = find_end(chat);
    if (status) chat_close(chat);
    return status;
}

Status chat_open(Tokenizer *tokenizer, const char *name, Chat *chat) {
    *chat = (Chat){.tokenizer = tokenizer};
    return open_end(chat, chat_template_open(tokenizer, name, &chat->template));
}

Status chat_open_source(Tokenizer *tokenizer, const char *source, Chat *chat) {
    *chat = (Chat){.tokenizer = tokenizer};
    return open_end(chat, chat_template_compile(tokenizer, source, &chat->template));
}

void chat_close(Chat *chat) {
    chat_template_free(&chat->template);
    *chat = (Chat){0};
}

/* ---- encoding ---- */

static Status encode(const Chat *chat, const char *text, int64_t length, TokenList *ids) {
    return tokenizer_encode_special(chat->tokenizer, text, length, ids);
}

Status chat_find_token(const Chat *chat, const JinjaOutput *text, int64_t length, const int32_t *ids,
                       int64_t count, int64_t *token) {
    CLOSED_BY(token_list_free) TokenList part = {0};
    TRY(encode(chat, text->text, length, &part));
    for (*token = 0; *token < part.count && *token < count && part.ids[*token] == ids[*token];) ++*token;
    return OK;
}

static int64_t same_beginning(const JinjaOutput *a, const JinjaOutput *b) {
    int64_t same = 0;
    while (same < a->length && same < b->length && a->text[same] == b->text[same]) same++;
    return same;
}

static Status not_printed(void) {
    return fail(ERROR_FORMAT, "the chat template does not print a message exactly once and unchanged");
}

/* Finds the start of the last message's content in the rendering, by a sentinel in its place. */
static Status find_content(const Chat *chat, ChatMessage *messages, int64_t count, const JinjaOutput *output,
                           int64_t *content) {
    char sentinel[SENTINEL_SIZE];
    CLOSED_BY(jinja_output_free) JinjaOutput marked = {0};
    const ChatMessage last = messages[count - 1];
    chat_choose_sentinel(output->text, output->length, sentinel);
    messages[count - 1] = message_of(last.role, sentinel);
    Status status = chat_template_render(&chat->template, messages, count, true, &marked);
    messages[count - 1] = last;
    TRY(status);
    if ((*content = chat_find_sentinel(&marked, sentinel)) < 0) return not_printed();
    if (*content > same_beginning(output, &marked)) *content = same_beginning(output, &marked);
    return OK;
}

/* Appends the tokens of the text from `from` on, and finds the first token of the content. That token begins
 * at `start`, or at the space before, because a word's first token may include the space. */
static Status encode_content(const Chat *chat, const JinjaOutput *whole, int64_t from, int64_t start,
                             TokenList *ids, int64_t *content) {
    const JinjaOutput text = {.text = whole->text + from, .length = whole->length - from};
    int64_t first = ids->count;
    TRY(encode(chat, text.text, text.length, ids));
    start = start > from ? start - from : 0;
    while (start > 0 && text.text[start - 1] == ' ') start--;
    return chat_find_token(chat, &text, start, ids->ids + first, ids->count - first, content);
}

Status chat_encode(const Chat *chat, const ChatMessage *messages, int64_t count, bool ask, TokenList *ids,
                   int64_t *content) {
    CLOSED_BY(jinja_output_free) JinjaOutput output = {0};
    int64_t start = 0;
    TRY(chat_template_render(&chat->template, messages, count, ask, &output));
    if (!content) return encode(chat, output.text, output.length, ids);
    OWNED ChatMessage *copy = memory_array((size_t)count, sizeof *copy);
    memcpy(copy, messages, (size_t)count * sizeof *copy);
    TRY(find_content(chat, copy, count, &output, &start));
    return encode_content(chat, &output, 0, start, ids, content);
}

/* Drops the tokens from `first` to the end of an answer, because the window already contains them. */
static void drop_end(const Chat *chat, TokenList *ids, int64_t first, int64_t *content) {
    int64_t end = first;
    while (end < ids->count && ids->ids[end] != chat->end) end++;
    if (end == ids->count || end - first >= *content) return;
    int64_t gone = end + 1 - first;
    *content -= gone;
    memmove(ids->ids + first, ids->ids + first + gone,
            (size_t)(ids->count - first - gone) * sizeof *ids->ids);
    ids->count -= gone;
}

Status chat_encode_next(const Chat *chat, const ChatMessage *message, bool ended, TokenList *ids,
                        int64_t *content) {
    ChatMessage messages[3] = {[2] = *message};
    char sentinel[SENTINEL_SIZE]; // stands for the answer
    CLOSED_BY(jinja_output_free) JinjaOutput output = {0};
    int64_t behind, start, first = ids->count;
    TRY(render_answer(chat, messages, 3, sentinel, &output, &behind));
    if (behind < 0) return not_printed();
    TRY(find_content(chat, messages, 3, &output, &start));
    TRY(encode_content(chat, &output, behind, start, ids, content));
    if (ended) drop_end(chat, ids, first, content);
    return OK;
}
