#define _GNU_SOURCE
#include "tasks/chat/chat.h"

#include "base/memory.h"

#include <string.h>
#include <time.h>

/* ---- opening ---- */

/* The text of a token, or "": memory_free it. */
static char *token_text(const Tokenizer *t, int32_t id) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    return bytes ? memory_text_slice((const char *)bytes, (size_t)length) : memory_text("");
}

static Status read_template(const Tokenizer *t, const char *name, const char *begin, const char *end,
                            ChatTemplate *template) {
    const char *source = tokenizer_chat_template(t);
    char date[32];
    time_t now = time(NULL);
    struct tm day;
    if (*name) return chat_template_named(name, begin, end, template);
    if (!source)
        return fail(ERROR_USAGE,
                    "the model has no chat template: choose one of chatml, llama3, zephyr and mistral with "
                    "--template");
    strftime(date, sizeof date, "%d %b %Y", localtime_r(&now, &day));
    return chat_template_read(source, begin, end, date, template);
}

static Status find_end(Chat *chat) {
    TokenList ids = {0};
    const char *end = chat->template.end;
    Status status = tokenizer_encode_special(chat->tokenizer, end, (int64_t)strlen(end), &ids);
    chat->end = ids.count == 1 ? ids.ids[0] : -1;
    token_list_free(&ids);
    if (status || chat->end >= 0) return status;
    return fail(ERROR_USAGE, "the chat template ends an answer with %s, which is no token of the tokenizer",
                end);
}

Status chat_open(Tokenizer *tokenizer, const char *name, Chat *chat) {
    *chat = (Chat){.tokenizer = tokenizer};
    int32_t last = tokenizer_special(tokenizer, TOKEN_END);
    char *begin = token_text(tokenizer, tokenizer_special(tokenizer, TOKEN_BEGIN));
    char *end = token_text(tokenizer, last >= 0 ? last : tokenizer_end_of_text(tokenizer));
    Status status = read_template(tokenizer, name, begin, end, &chat->template);
    memory_free(begin);
    memory_free(end);
    if (!status) status = find_end(chat);
    if (status) chat_close(chat);
    return status;
}

void chat_close(Chat *chat) {
    chat_template_free(&chat->template);
}

/* ---- rendering ---- */

typedef struct {
    const ChatTemplate *template;
    const ChatMessage *messages;
    int64_t count, asked; // asked: the last message that is the user's
    Bytes *text;
} Rendering;

static void put(Bytes *text, const char *part) {
    bytes_put(text, part, (int64_t)strlen(part));
}

static ChatMessage trimmed(ChatMessage m, const char *spaces) {
    while (m.length && strchr(spaces, *m.text)) m.text++, m.length--;
    while (m.length && strchr(spaces, m.text[m.length - 1])) m.length--;
    return m;
}

/* Qwen 3's answers: the thoughts are the text between <think> and </think>. */
static void put_thinking(const Rendering *r, int64_t i) {
    static const char close[] = "</think>";
    ChatMessage thoughts = r->messages[i], said = thoughts;
    const char *first = memmem(said.text, (size_t)said.length, close, strlen(close)), *next;
    thoughts.length = first ? first - thoughts.text : 0;
    while ((next = memmem(said.text, (size_t)said.length, close, strlen(close)))) {
        next += strlen(close);
        said.length -= next - said.text;
        said.text = next;
    }
    while ((next = memmem(thoughts.text, (size_t)thoughts.length, "<think>", strlen("<think>")))) {
        next += strlen("<think>");
        thoughts.length -= next - thoughts.text;
        thoughts.text = next;
    }
    thoughts = trimmed(thoughts, "\n");
    bool shown = i > r->asked && (i == r->count - 1 || thoughts.length);
    while ((first || shown) && said.length && *said.text == '\n') said.text++, said.length--;
    if (shown) {
        put(r->text, "<think>\n");
        bytes_put(r->text, thoughts.text, thoughts.length);
        put(r->text, "\n</think>\n\n");
    }
    bytes_put(r->text, said.text, said.length);
}

static void put_content(const Rendering *r, int64_t i) {
    ChatMessage m = r->messages[i];
    if (r->template->trims[m.role]) m = trimmed(m, " \t\n\r\v\f");
    if (r->template->thinks && m.role == ROLE_ASSISTANT)
        put_thinking(r, i);
    else
        bytes_put(r->text, m.text, m.length);
}

static Status check(const ChatTemplate *t, const ChatMessage *messages, int64_t count) {
    int64_t first = count && messages[0].role == ROLE_SYSTEM;
    if (first && t->place == SYSTEM_NONE)
        return fail(ERROR_FORMAT, "the model's chat template has no place for a system message");
    for (int64_t i = first; t->alternates && i < count; i++)
        if (messages[i].role != ((i - first) % 2 ? ROLE_ASSISTANT : ROLE_USER))
            return fail(ERROR_FORMAT,
                        "the model's chat template wants user and assistant in turns, but message %lld is "
                        "of the %s",
                        (long long)i + 1, chat_role_name(messages[i].role));
    return OK;
}

Status chat_render(const ChatTemplate *t, const ChatMessage *messages, int64_t count, bool ask, Bytes *text,
                   int64_t *starts) {
    Rendering r = {t, messages, count, count - 1, text};
    bool own = t->place == SYSTEM_OWN, given = count && messages[0].role == ROLE_SYSTEM;
    int64_t begin = text->count,
            moved = t->place == SYSTEM_FIRST ? 1 : count - 1; // where a system message goes
    TRY(check(t, messages, count));
    while (r.asked > 0 && messages[r.asked].role != ROLE_USER) r.asked--;
    put(text, t->begin);
    if (own && !given && t->system) {
        put(text, t->before[ROLE_SYSTEM]);
        put(text, t->system);
        put(text, t->after[ROLE_SYSTEM]);
    }
    for (int64_t i = 0; i < count; i++) {
        ChatRole role = messages[i].role;
        if (starts) starts[i] = text->count - begin + (int64_t)strlen(t->ask);
        if (!own && role == ROLE_SYSTEM) continue;
        put(text, t->before[role]);
        if (starts && role != ROLE_ASSISTANT) starts[i] = text->count - begin;
        if (!own && given && i == moved && role == ROLE_USER) {
            put_content(&r, 0);
            put(text, t->joint);
        }
        put_content(&r, i);
        put(text, t->after[role]);
    }
    if (ask) put(text, t->ask);
    return OK;
}

/* ---- encoding ---- */

static Status encode(const Chat *chat, const Bytes *text, int64_t length, TokenList *ids) {
    return tokenizer_encode_special(chat->tokenizer, text->bytes, length, ids);
}

/* Where the tokens of text[0, length) part from those of the whole: the token that holds what comes next. */
static Status find_token(const Chat *chat, const Bytes *text, int64_t length, const int32_t *ids,
                         int64_t count, int64_t *token) {
    TokenList part = {0};
    Status status = encode(chat, text, length, &part);
    for (*token = 0; *token < part.count && *token < count && part.ids[*token] == ids[*token];) ++*token;
    token_list_free(&part);
    return status;
}

/* Appends the tokens of the text, and finds that of the content that begins at `start`, or the space before
 * it: a word's first token may hold that. */
static Status encode_content(const Chat *chat, const Bytes *text, int64_t start, TokenList *ids,
                             int64_t *content) {
    int64_t first = ids->count;
    TRY(encode(chat, text, text->count, ids));
    while (start > 0 && text->bytes[start - 1] == ' ') start--;
    return find_token(chat, text, start, ids->ids + first, ids->count - first, content);
}

Status chat_encode(const Chat *chat, const ChatMessage *messages, int64_t count, bool ask, TokenList *ids,
                   int64_t *content) {
    Bytes text = {0};
    int64_t *starts = memory_array((size_t)count, sizeof *starts);
    Status status = chat_render(&chat->template, messages, count, ask, &text, starts);
    if (!status) status = encode_content(chat, &text, starts[count - 1], ids, content);
    memory_free(starts);
    memory_free(text.bytes);
    return status;
}

Status chat_encode_next(const Chat *chat, const ChatMessage *message, bool ended, TokenList *ids,
                        int64_t *content) {
    const ChatTemplate *t = &chat->template;
    Bytes text = {0};
    const Rendering r = {t, message, 1, 0, &text};
    int64_t first = ids->count;
    put(&text, t->after[ROLE_ASSISTANT]); // begins with the end: what follows is cut as behind that
    put(&text, t->before[ROLE_USER]);
    int64_t start = text.count;
    put_content(&r, 0);
    put(&text, t->after[ROLE_USER]);
    put(&text, t->ask);
    Status status = encode_content(chat, &text, start, ids, content);
    memory_free(text.bytes);
    if (status || !ended) return status;
    --*content;
    memmove(ids->ids + first, ids->ids + first + 1, (size_t)(--ids->count - first) * sizeof *ids->ids);
    return OK;
}

/* Marks the tokens of each answer, of which starts[i] says where in the text it begins. */
static Status mark_answers(const Chat *chat, const ChatMessage *messages, int64_t count, const Bytes *text,
                           const int64_t *starts, const int32_t *ids, int64_t length, uint8_t *answers) {
    for (int64_t i = 0; i < count; i++) {
        int64_t token;
        if (messages[i].role != ROLE_ASSISTANT) continue;
        TRY(find_token(chat, text, starts[i], ids, length, &token));
        bool ended = false;
        for (; token < length && !ended; token++) {
            answers[token] = 1;
            ended = ids[token] == chat->end;
        }
    }
    return OK;
}

Status chat_encode_answers(const Chat *chat, const ChatMessage *messages, int64_t count, TokenList *ids,
                           Bytes *answers) {
    Bytes text = {0};
    int64_t first = ids->count, *starts = memory_array((size_t)count, sizeof *starts);
    Status status = chat_render(&chat->template, messages, count, false, &text, starts);
    if (!status) status = encode(chat, &text, text.count, ids);
    if (!status) {
        int64_t length = ids->count - first;
        bytes_reserve(answers, length);
        uint8_t *marked = answers->bytes + answers->count;
        memset(marked, 0, (size_t)length);
        answers->count += length;
        status = mark_answers(chat, messages, count, &text, starts, ids->ids + first, length, marked);
    }
    memory_free(starts);
    memory_free(text.bytes);
    return status;
}
